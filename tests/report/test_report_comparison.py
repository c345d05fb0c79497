from dataclasses import replace

import pytest

from vramscope.memory.snapshot import MemorySampled
from vramscope.report.comparison import changes_json, comparison
from vramscope.report.markdown import markdown
from vramscope.report.page import page
from vramscope.report.run import read_run

from ..journals import ENDED, OPENED, many_cycles, one_cycle, with_versions, write  # noqa: TID252
from ..picture import ALLOCATED, RESERVED  # noqa: TID252 - tests are not packages

MIB = 1 << 20


@pytest.fixture
def read(tmp_path):
    def read(name, *stories):
        return read_run(write(tmp_path / name, [OPENED], *stories, [ENDED]))

    return read


def told(before, after):
    """What the first part says."""
    text = markdown(comparison(before, after))
    part = text.partition("## What changed")[2].partition("\n## ")[0]
    return [line.removeprefix("- ").replace("\\", "") for line in part.splitlines() if line.startswith("- ")]


def larger(story, nbytes):
    """The same, but whatever is allocated is more."""

    def grown(held):
        allocated = held.allocator.allocated_bytes
        return replace(held, allocator=replace(held.allocator, allocated_bytes=allocated and allocated + nbytes))

    for event in story:
        is_sample = isinstance(event, MemorySampled)
        yield replace(event, devices=tuple(grown(held) for held in event.devices)) if is_sample else event


def test_the_same_run_twice_has_not_changed(read):
    assert told(read("a", one_cycle()), read("b", one_cycle())) == [
        "no version, device, plan or setting changed",
        "no figure of memory changed",
        "too few runs of any step to compare times",
    ]


def test_versions_come_first_then_every_byte_that_differs(read):
    before = read("a", one_cycle())
    after = read("b", with_versions(larger(one_cycle(), 2 * MIB), torch="2.14.0", driver="590.1"))
    lines = told(before, after)
    assert lines[:2] == ["torch: 2.13.0+cpu → 2.14.0", "driver: - → 590.1"]
    assert (
        f"qwen, allocated on device: 950.2 MiB ({ALLOCATED:,}) → 952.2 MiB ({ALLOCATED + 2 * MIB:,}), "
        "+2.0 MiB, +0.2 % (+2,097,152)"
    ) in lines
    assert not any("reserved" in line for line in lines), f"{RESERVED} stayed"


def test_times_count_as_changed_only_beyond_what_chance_may_do(read):
    first = read("a", many_cycles(20, 1.0))
    assert told(first, read("b", many_cycles(20, 1.05)))[-1] == "no time changed by more than chance may"
    slower = told(first, read("c", many_cycles(20, 2.0)))
    assert "load qwen: 1.02 s → 2.04 s, +100 %" in slower
    assert "load qwen, read: 1.02 s → 2.04 s, +100 %" in slower


def test_few_runs_tell_nothing_about_times(read):
    lines = told(read("a", many_cycles(2, 1.0)), read("b", many_cycles(2, 9.0)))
    assert lines[-1] == "too few runs of any step to compare times"


def test_runs_of_different_plans_say_so_and_show_what_only_one_has(read):
    lines = told(read("a", one_cycle()), read("b", many_cycles(3)))
    assert any(line.startswith("plan: qwen-cycle (demo.yaml") for line in lines)
    text = markdown(comparison(read("a", one_cycle()), read("b", many_cycles(3))))
    assert "qwen-cycle compared with many" in text
    assert "| **to the card** | 125 ms | - | - |" in text


def test_the_page_marks_what_changed_and_draws_both(read):
    before, after = read("a", many_cycles(9, 1.0)), read("b", with_versions(many_cycles(9, 2.0), torch="3"))
    text = page(comparison(before, after))
    assert text.count('<tr class="changed">') == 3, "torch, the load and its phase"
    assert "load qwen, before" in text
    assert "load qwen, after" in text


def test_json_has_every_figure_whether_it_changed_or_not(read):
    rows = changes_json(read("a", one_cycle()), read("b", with_versions(one_cycle(), torch="3")))
    changed = [row["what"] for row in rows if row["changed"]]
    assert changed == ["torch"]
    assert len(rows) > 20

import io
from dataclasses import replace

import pytest
from rich.console import Console

from vramscope.memory.owners import shares
from vramscope.memory.residue import PlaceResidue, Residue, ResidueMeasured
from vramscope.report.ledger_view import LOOKS, cells, print_ledgers
from vramscope.report.results import ResultsBuilder
from vramscope.report.row import ResultRow

from ..picture import TOTAL, back_and_gone, until_on_device  # noqa: TID252 - tests are not packages

LEDGER = {"parameters": 942, "buffers": 1, "allocator_cache": 42, "cuda_context": 113, "free": 11_000}
LEFT = PlaceResidue(where="cuda:0", causes={"live_tensors": 0, "allocator_cache": 1 << 20}, level_bytes=1 << 20)
CLEAN = replace(LEFT, causes={"live_tensors": 0, "allocator_cache": 0}, level_bytes=0)


def row(*places, after="unload"):
    builder = ResultsBuilder()
    measured = ResidueMeasured(at=1.0, residues=(Residue(model="qwen", after=after, places=places),))
    for event in (*until_on_device(), *back_and_gone(), *((measured,) if places else ())):
        builder.on_event(event)
    return builder.rows()[0]


def shown(rows, *, terminal, width=100, color=None):
    stream = io.StringIO()
    print_ledgers(rows, Console(file=stream, width=width, force_terminal=terminal, color_system=color))
    return stream.getvalue()


@pytest.mark.parametrize("width", [5, 6, 17, 100, 1000])
def test_cells_fill_the_bar_and_show_everything_that_is_there(width):
    found = cells(shares(LEDGER | {"other_processes": 0}), width)
    assert sum(found) == width
    assert [count > 0 for count in found] == [True, True, True, True, False, True]


def test_a_bar_that_is_too_narrow_or_has_nothing_to_show_is_empty():
    assert cells(shares(LEDGER), 4) == [0] * 5
    assert cells(shares({"free": 0}), 80) == [0]


def test_anything_but_a_terminal_gets_a_line_for_each_fact():
    lines = shown([row()], terminal=False).splitlines()
    assert lines[0] == "Where every byte of simulated device cuda:0 was, with qwen on it, cycle 1"
    assert "  cuda:0 parameters: 942.3 MiB (988,065,536)" in lines
    assert "  cuda:0 allocator rounding: 7.9 MiB (8,256,640)" in lines
    assert f"  cuda:0 total: 12,288.0 MiB ({TOTAL:,})" in lines
    assert sum(line.startswith("  cuda:0 why: ") for line in lines) == 5


def test_a_terminal_gets_a_bar_of_its_width_with_a_letter_for_each_owner_where_there_is_no_colour():
    lines = shown([row()], terminal=True).strip().splitlines()
    whole = lines[1].strip()
    assert len(whole) == 98
    assert whole.rstrip(".") == "PPPPPPPBRCX"
    in_use = lines[3].strip()
    assert sorted(set(in_use), key=in_use.index) == list("PBRCX")
    assert any(line.split() == ["RR", "allocator", "rounding", "7.9", "MiB", "8,256,640", "0.1", "%"] for line in lines)
    assert max(len(line) for line in lines) <= 100


def test_a_terminal_with_colours_gets_blocks():
    text = shown([row()], terminal=True, color="truecolor")
    assert "\x1b[38;2;0;114;178m█" in text
    assert "░" in text


def test_looks_are_all_different():
    letters = [letter for letter, _ in LOOKS.values()]
    assert len(set(letters)) == len(letters)


def test_each_device_is_shown_once_with_its_last_ledger():
    rows = [replace(row(), cycle=cycle, device=device) for cycle in (1, 2) for device in ("cuda:0", "cuda:1")]
    titles = [line for line in shown(rows, terminal=False).splitlines() if line.startswith("Where")]
    assert [title.rsplit(" device ")[1] for title in titles] == [
        "cuda:0 was, with qwen on it, cycle 2",
        "cuda:1 was, with qwen on it, cycle 2",
    ]


def test_a_row_without_a_ledger_or_a_residue_shows_nothing():
    assert shown([ResultRow(model="qwen", cycle=1)], terminal=False) == ""


def test_what_is_left_is_told_with_its_cause_and_what_came_back_is_said():
    lines = shown([row(LEFT)], terminal=False).splitlines()
    assert lines[-2] == "qwen, cycle 1, after unload, cuda:0: 1.0 MiB (1,048,576 bytes) left"
    assert lines[-1].startswith("  cuda:0 allocator_cache: 1.0 MiB (1,048,576 bytes): free blocks")
    lines = shown([row(CLEAN, after="release")], terminal=False).splitlines()
    assert lines[-1] == "qwen, cycle 1, after release, cuda:0: gave everything back"
    text = shown([row(LEFT)], terminal=True)
    assert "What qwen, cycle 1, after unload left behind" in text
    assert "free blocks" in text

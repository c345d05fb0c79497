"""A journal, read and folded, as a report in its forms."""

import base64
import hashlib
import json
import re
import tracemalloc
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from rich.console import Console

from vramscope.events import Outcome, WorkerExited
from vramscope.journal.lines import JournalGap
from vramscope.journal.reader import JournalError
from vramscope.memory.snapshot import MemorySampled
from vramscope.report.markdown import markdown
from vramscope.report.page import page
from vramscope.report.results import ResultsBuilder
from vramscope.report.run import read_run
from vramscope.report.run_json import run_json
from vramscope.report.run_sections import run_report
from vramscope.report.terminal import print_report

from ..journals import ENDED, OPENED, many_cycles, one_cycle, write  # noqa: TID252 - tests are not packages
from ..picture import ALLOCATED, HOSTILE, PARAMETERS, RESERVED, STARTED_AT, USED, step, until_on_device  # noqa: TID252


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "run.jsonl"


@pytest.fixture
def picture(journal):
    return read_run(write(journal, [OPENED], one_cycle(), [ENDED]))


def table(text, heading):
    """The first table of a part of a Markdown report, as rows of cells."""
    part = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")]
    return [rows[0], *rows[2:]]


def test_the_rows_are_those_that_the_run_itself_showed(picture):
    live = ResultsBuilder()
    for event in one_cycle():
        live.on_event(event)
    assert picture.story.results.rows() == live.rows()


def test_the_results_table_has_every_figure(picture):
    text = markdown(run_report(picture))
    part = text.partition("## Results")[2].partition("## Memory")[0]
    for figure in (PARAMETERS, ALLOCATED, RESERVED, USED, 988_065_536, 988_097_824):
        assert f"{figure:,}" in part
    for word in ("float16", "succeeded", "942.3 MiB", "1,105.0 MiB", "worker RAM", "left behind", "theoretical"):
        assert word in part
    assert "CUDA context" in part, "what explains the difference is told, too"


def test_what_ran_is_told_with_its_versions(picture):
    facts = dict(table(markdown(run_report(picture)), "The run")[1:])
    assert facts["torch"] == "2.13.0+cpu"
    assert facts["vramscope"] == "0.1.0"
    assert facts["plan"].startswith("qwen-cycle (demo.yaml, sha256 abab")
    assert facts["cycles"] == "1 succeeded"
    assert facts["backend"].startswith("simulated, no GPU was used")
    assert picture.notes == ()


def test_times_are_told_by_phase(picture):
    text = markdown(run_report(picture))
    assert "| load qwen | read | 1.00 s | 1.00 s | 1.00 s | 988,065,536 | 942.3 MiB/s |" in text
    assert "| load qwen | resolve | 250 ms | 250 ms | 250 ms | - | - |" in text
    assert "set" in text.partition("Load and move times")[2], "a simulated copy's time is no measurement"


def test_forecast_and_measurement_stand_side_by_side(journal):
    rows = table(
        markdown(run_report(read_run(write(journal, one_cycle(error_bytes=512))))), "Forecast against measured"
    )
    assert rows[1:] == [
        ["to the card", "cuda:0", "allocated", f"{ALLOCATED:,}", f"{ALLOCATED + 512:,}", "+512"],
        ["to the card", "cuda:0", "reserved", f"{RESERVED:,}", f"{RESERVED:,}", "0"],
    ]


def test_residue_is_told_over_the_cycles(journal):
    run = read_run(write(journal, [OPENED], many_cycles(30, leak=1000)))
    assert list(run.story.residues["qwen", "cuda:0"]) == [(cycle, 1000 * cycle) for cycle in range(1, 31)]
    ((_, *figures),) = table(markdown(run_report(run)), "Residue over cycles")[1:]
    assert figures == ["cuda:0", "0.0 MiB (30,000)", "0.0 MiB (30,000)", "+1,000 bytes"]


def test_memory_over_time_has_an_owner_for_every_byte(picture):
    points = list(picture.story.points["cuda:0"])
    assert max(point.used_bytes for point in points) == USED
    assert all(sum(point.owners.values()) == 12_884_901_888 for point in points)


def test_where_the_worker_died_nothing_is_known_until_it_is_back(journal):
    died = WorkerExited(at=STARTED_AT + 9, pid=17, reason="signal", detail="killed by SIGKILL", expected=False)
    run = read_run(write(journal, [OPENED], until_on_device(), [died]))
    assert run.story.points["cuda:0"]
    assert list(run.story.recent["cuda:0"])[-1].owners == {}
    assert run.story.restarts == {"signal": 1}
    assert "killed by SIGKILL" in page(run_report(run))


def test_steps_that_failed_are_counted_and_told(journal):
    failed = step(STARTED_AT + 9, "move", 0.5, name="to the card", outcome=Outcome.FAILED, error="out of memory")
    run = read_run(write(journal, [OPENED], until_on_device(), failed))
    assert run.story.steps["to the card"].runs == {"succeeded": 1, "failed": 1}
    assert run.story.steps["to the card"].seconds.count == 1, "a failed run's time is none"
    text = markdown(run_report(run))
    assert "1 failed, 1 succeeded" in text
    assert "out of memory" in text.partition("## Faults")[2]


def test_a_run_that_is_not_over_says_so_and_so_does_one_with_gaps(journal):
    gap = JournalGap(at=STARTED_AT + 9, since=STARTED_AT + 8, dropped=1234)
    write(journal, [OPENED], until_on_device(), [gap])
    journal.write_bytes(journal.read_bytes() + b"\x00\n" + b'{"schema": 1, "event": "later", "at": 1}\n{"schema"')
    assert read_run(journal).notes == (
        "once nothing could be written for too long: 1,234 events are missing",
        "1 line is damaged and passed over",
        "1 event is of a kind that only a newer vramscope knows",
        "the run is not over, or ended without a word, and its last line is not complete",
    )


def test_of_many_runs_the_last_is_told_unless_another_is_asked_for(journal):
    write(journal, [OPENED], one_cycle(), [ENDED, OPENED], many_cycles(2), [ENDED])
    names = [read_run(journal, number).story.store.state.plan.name for number in (None, 1, 2)]
    assert names == ["many", "qwen-cycle", "many"]
    assert "run 1 of 2" in markdown(run_report(read_run(journal, 1)))
    with pytest.raises(JournalError, match=r"--run 3: .* holds 2 runs"):
        read_run(journal, 3)


def test_a_run_without_anything_is_a_report_without_tables(journal):
    run = read_run(write(journal, [OPENED]))
    text = page(run_report(run)) + markdown(run_report(run)) + json.dumps(run_json(run))
    assert "Results" not in text


@pytest.mark.parametrize("cut", range(2, 44, 3))
def test_a_journal_that_ends_anywhere_is_a_report(journal, cut):
    events = [OPENED, *one_cycle()]
    run = read_run(write(journal, events[:cut]))
    assert page(run_report(run)).count("<section>") >= 1
    assert markdown(run_report(run))
    json.dumps(run_json(run))


class Strict(HTMLParser):
    """Collects tags, attributes and whether every tag is closed."""

    VOID = frozenset({"meta", "rect", "line", "polyline"})

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.attributes, self.policy = [], set(), [], ""

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if dict(attrs).get("http-equiv") == "Content-Security-Policy":
            self.policy = dict(attrs)["content"]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(text):
    parser = Strict()
    parser.feed(text)
    assert parser.open == []
    return parser


def test_the_page_has_charts_and_needs_nothing_from_anywhere(journal):
    text = page(run_report(read_run(write(journal, [OPENED], one_cycle(residue_bytes=4096), [ENDED]))))
    found = parsed(text)
    assert text.count("<svg") == 4
    for owner in ("parameters", "allocator rounding", "allocator cache", "CUDA context"):
        assert f"<title>{owner}</title>" in text
    assert "<title>load qwen: succeeded, 1.25 s</title>" in text
    assert "<title>load qwen, read: 1.00 s</title>" in text
    assert found.tags.isdisjoint({"script", "link", "img", "iframe", "object", "a", "form"})
    assert not {name for name, _ in found.attributes} & {"src", "href", "style", "onload", "onclick"}
    assert "url(" not in text
    assert "@import" not in text
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert found.policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def test_names_from_a_plan_are_text_and_nothing_else(journal):
    name = HOSTILE + "|x|`y`"
    story = [*one_cycle(), *step(STARTED_AT + 24, "load", 1.0, name=name, model=name, phases=[(name, 1.0, 5)])]
    run = read_run(write(journal, [OPENED], story))
    found = parsed(page(run_report(run)))
    assert "img" not in found.tags
    lines = markdown(run_report(run)).splitlines()
    assert not any("<img" in line.replace(r"\<", "") for line in lines)
    rows = [line for line in lines if line.startswith("| \\<img")]
    assert rows
    assert all(re.sub(r"\\.", "", row).count("|") in {7, 8, 10} for row in rows), "no cell is split"
    console = Console(width=400, record=True)
    print_report(run_report(run), console)
    assert r"\n" in console.export_text()


def test_a_long_run_has_charts_of_its_last_cycles_and_of_the_whole(journal):
    run = read_run(write(journal, [OPENED], many_cycles(400), [ENDED]))
    text = page(run_report(run))
    assert "cuda:0, the last cycles" in text
    assert "cuda:0, the whole run" in text
    assert len(text) < 400_000
    assert text.count('class="span"') == 6, "the steps of three cycles"
    assert run.story.cycles == {"succeeded": 400}
    assert run.story.steps["load qwen"].seconds.count == 400


def test_a_journal_is_read_in_bounded_memory(journal):
    """What five times as many cycles add is less than the journal that they add."""
    taken = {}
    for count in (200, 1000):
        write(journal, [OPENED], many_cycles(count))
        tracemalloc.start()
        read_run(journal)
        taken[count] = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert journal.stat().st_size > 2_500_000
    assert taken[1000] < taken[200] + 1_000_000


def test_figures_that_no_device_has_break_no_chart(journal):
    story = []
    for event in one_cycle():
        if isinstance(event, MemorySampled):
            held = event.devices[0]
            driver = replace(held.driver, total_bytes=2**62, used_bytes=0, process_used_bytes=2**61)
            story.append(replace(event, devices=(replace(held, driver=driver),)))
        else:
            story.append(event)
    parsed(page(run_report(read_run(write(journal, [OPENED], story)))))


def test_a_clock_that_is_set_back_breaks_no_chart(journal):
    events = [OPENED, *one_cycle()]
    backwards = [replace(event, at=STARTED_AT - number * 100) for number, event in enumerate(events)]
    parsed(page(run_report(read_run(write(journal, backwards)))))


def test_json_has_the_rows_and_the_series(picture):
    told = json.loads(json.dumps(run_json(picture)))
    assert told["results"][0]["on_device"]["allocated_bytes"] == ALLOCATED
    assert told["versions"]["torch"] == "2.13.0+cpu"
    assert told["peaks"]["cuda:0"]["used"] == USED
    assert told["forecast"][0]["largest_error_bytes"] == 0
    assert told["residue"] == [{"model": "qwen", "where": "cuda:0", "cycles": [{"cycle": 1, "bytes": 0}]}]
    load = next(each for each in told["steps"] if each["step"] == "load qwen")
    assert load["phases"]["read"]["seconds"] == {"count": 1, "median": 1.0, "least": 1.0, "most": 1.0}

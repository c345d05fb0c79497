"""`vramscope report` as a user runs it."""

import json
import os
import subprocess
import sys

import pytest

from vramscope.journal.lines import encode

from ..journals import ENDED, OPENED, many_cycles, one_cycle, with_versions, write  # noqa: TID252
from ..picture import ALLOCATED, PARAMETERS  # noqa: TID252 - tests are not packages


@pytest.fixture
def place(tmp_path):
    write(tmp_path / "run.jsonl", [OPENED], one_cycle(), [ENDED])
    write(tmp_path / "later.jsonl", [OPENED], with_versions(one_cycle(), torch="2.14.0"), [ENDED])
    return tmp_path


def report(place, *arguments):
    command = [sys.executable, "-m", "vramscope", "report", *map(str, arguments)]
    return subprocess.run(command, cwd=place, capture_output=True, text=True, timeout=100, check=False)


def test_text_is_the_default_and_has_the_results(place):
    ended = report(place, "run.jsonl")
    assert (ended.returncode, ended.stderr) == (0, "")
    for text in (f"{PARAMETERS:,}", f"{ALLOCATED:,}", "Forecast against measured", "Residue over cycles"):
        assert text in ended.stdout


@pytest.mark.parametrize(
    ("name", "start"),
    [("r.html", "<!doctype html>"), ("r.md", "# vramscope: qwen"), ("r.json", "{"), ("r.txt", "vramscope: qwen")],
)
def test_the_ending_of_the_file_says_how_it_is_written(place, name, start):
    ended = report(place, "run.jsonl", "-o", name)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
    assert (place / name).read_text().startswith(start)
    assert sorted(path.name for path in place.iterdir()) == sorted({"run.jsonl", "later.jsonl", name}), "nothing else"


def test_the_format_that_is_asked_for_goes_before_the_ending(place):
    assert report(place, "run.jsonl", "-o", "r.html", "--format", "json").returncode == 0
    assert json.loads((place / "r.html").read_text())["results"][0]["parameters"] == PARAMETERS


def test_all_formats_go_to_standard_output_too(place):
    assert report(place, "run.jsonl", "--format", "markdown").stdout.startswith("# vramscope: qwen-cycle\n")
    assert report(place, "run.jsonl", "--format", "html").stdout.rstrip().endswith("</html>")
    assert json.loads(report(place, "run.jsonl", "--format", "json").stdout)["cycles"] == {"succeeded": 1}


def test_two_journals_are_compared_versions_first(place):
    ended = report(place, "run.jsonl", "--compare", "later.jsonl")
    assert ended.returncode == 0
    assert "torch: 2.13.0+cpu → 2.14.0" in ended.stdout
    told = json.loads(report(place, "run.jsonl", "--compare", "later.jsonl", "--format", "json").stdout)
    assert told["changes"][0] == {"what": "torch", "before": "2.13.0+cpu", "after": "2.14.0", "changed": True}
    assert told["before"]["versions"]["torch"] == "2.13.0+cpu"
    assert report(place, "run.jsonl", "--compare", "later.jsonl", "-o", "c.html").returncode == 0
    assert "<svg" in (place / "c.html").read_text()


def test_two_runs_of_one_journal_are_compared(place):
    write(place / "two.jsonl", [OPENED], one_cycle(), [ENDED, OPENED], many_cycles(2), [ENDED])
    ended = report(place, "two.jsonl", "--run", 1, "--compare", "two.jsonl")
    assert "qwen-cycle compared with many" in ended.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["gone.jsonl"], 1, "gone.jsonl: cannot be read: No such file or directory"),
        (["."], 1, ".: cannot be read: Is a directory"),
        (["empty"], 1, "empty: the journal is empty (no run has written to it yet)"),
        (["foreign"], 1, "foreign: this is no journal of vramscope (`run --journal FILE` writes one)"),
        (
            ["run.jsonl", "-o", "x.pdf"],
            2,
            "-o x.pdf: expected a name that ends with .txt, .json, .md, .markdown, .html, ",
        ),
        (["newer"], 1, "newer:1: written by a newer vramscope: schema 2, and this one reads 1"),
        (["torn"], 1, "torn: no event of the journal is complete yet"),
        (["run.jsonl", "--compare", "foreign"], 1, "foreign: this is no journal of vramscope"),
        (["run.jsonl", "--run", "2"], 1, "--run 2: run.jsonl holds 1 run"),
        (["run.jsonl", "--compare-run", "2"], 2, "--compare-run: expected --compare JOURNAL, too"),
        (
            ["run.jsonl", "--format", "text", "-o", "run.jsonl"],
            2,
            "-o run.jsonl: this is the journal itself; name another file",
        ),
        (["run.jsonl", "-o", "no/such/r.html"], 1, "-o no/such/r.html: cannot be written: No such file or directory"),
        (["run.jsonl", "-o", "/dev/full"], 1, "-o /dev/full: cannot be written: No space left on device"),
    ],
)
def test_what_cannot_be_is_one_clear_line(place, arguments, code, message):
    (place / "empty").touch()
    (place / "foreign").write_bytes(os.urandom(100_000))
    (place / "newer").write_bytes(b'{"schema": 2, "event": "journal_opened", "at": 1}\n')
    (place / "torn").write_bytes(encode(OPENED)[:40])
    ended = report(place, *arguments)
    assert (ended.returncode, ended.stdout) == (code, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"vramscope: {message}")


def test_lines_of_a_newer_schema_are_passed_over_and_counted(place):
    journal = place / "run.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*(30 * [b'{"schema": 2, "event": "cycle_started", "at": 1}\n']), *lines]))
    ended = report(place, "run.jsonl", "--format", "json")
    assert ended.returncode == 0
    assert json.loads(ended.stdout)["results"][0]["parameters"] == PARAMETERS
    assert "30 lines are of another schema than this vramscope reads, and passed over" in ended.stdout


def test_a_report_that_fails_leaves_an_older_one_as_it_was(place):
    (place / "r.html").write_text("older")
    assert report(place, "gone.jsonl", "-o", "r.html").returncode == 1
    assert (place / "r.html").read_text() == "older"

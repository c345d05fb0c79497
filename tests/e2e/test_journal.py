"""A daemon that writes a journal, on a disk that becomes full and is mended, through signals and restarts."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.daemon import Daemon, wait_for

from vramscope.report.run import read_run

TINY = Path(__file__).parents[2] / "deploy/plans/tiny.yaml"
TEXT = "the quick brown fox"
LOOP = f"""
version: 1
name: loop
models: {{tiny: {{source: "synthetic:tiny"}}}}
repeat: forever
steps:
  - tokenize: {{model: tiny, text: "{TEXT}"}}
  - load: {{model: tiny, to: cuda:0}}
  - unload: tiny
  - release
"""


def lines(journal: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in journal.read_text().splitlines()]


def report(*arguments: object) -> str:
    command = [sys.executable, "-m", "vramscope", "report", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_the_journal_tells_what_the_daemon_told(start: Callable[..., Daemon], tmp_path: Path) -> None:
    journal = tmp_path / "run.jsonl"
    daemon = start(TINY, "--device", "simulated", "--journal", journal)
    wait_for("the plan's end", lambda: daemon.status()["plan"]["outcome"])
    assert daemon.total("vramscope_journal_up") == 1
    live = daemon.status()["results"]
    assert daemon.stop() == 0

    assert lines(journal)[0]["event"] == "journal_opened"
    assert lines(journal)[-1]["event"] == "journal_closed"
    told = json.loads(report(journal, "--format", "json"))
    shown = [{key: row[key] for key in of_page} for row, of_page in zip(told["results"], live, strict=True)]
    assert shown == live
    assert told["notes"] == []
    assert told["forecast"]
    assert {each["largest_error_bytes"] for each in told["forecast"]} == {0}
    assert "<svg" in report(journal, "--format", "html")


def test_no_prompt_and_no_text_of_a_plan_is_in_the_journal(
    start: Callable[..., Daemon], write_plan: Callable[[str], Path], tmp_path: Path
) -> None:
    journal = tmp_path / "run.jsonl"
    daemon = start(write_plan(LOOP), "--once", "--device", "simulated", "--journal", journal)
    assert daemon.process.wait(60) == 0
    assert "tokenize tiny" in journal.read_text()
    assert not any(word in journal.read_text() for word in ("quick", "brown"))


def test_two_runs_of_one_journal_are_told_apart_and_a_killed_one_is_mended(
    start: Callable[..., Daemon], write_plan: Callable[[str], Path], tmp_path: Path
) -> None:
    journal = tmp_path / "run.jsonl"
    daemon = start(write_plan(LOOP), "--device", "simulated", "--journal", journal)
    wait_for("a cycle", lambda: daemon.total("vramscope_cycles_total", outcome="succeeded"))
    daemon.process.send_signal(signal.SIGKILL)
    daemon.process.wait(60)
    with journal.open("ab") as stream:
        stream.write(b'{"schema": 1, "ev')
    daemon = start(write_plan(LOOP), "--once", "--device", "simulated", "--journal", journal)
    assert daemon.process.wait(60) == 0

    assert read_run(journal).runs == 2
    first = read_run(journal, 1)
    assert first.story.cycles["succeeded"] >= 1
    assert first.notes == ("1 line is damaged and passed over", "the run ended without a word")


# Without the ballast there is room for what has waited and for all that comes until the test's end.
DISK_BYTES = 32 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "none", str(place)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_full_disk_stops_no_cycle_and_shows_and_passes(
    start: Callable[..., Daemon], write_plan: Callable[[str], Path], small_disk: Path
) -> None:
    journal, ballast = small_disk / "run.jsonl", small_disk / "ballast"
    ballast.write_bytes(bytes(DISK_BYTES - (56 << 10)))
    daemon = start(write_plan(LOOP), "--device", "simulated", "--journal", journal)
    wait_for("the fault", lambda: daemon.total("vramscope_journal_up") == 0)
    cycles = daemon.total("vramscope_cycles_total", outcome="succeeded") or 0
    wait_for("more cycles", lambda: (daemon.total("vramscope_cycles_total", outcome="succeeded") or 0) >= cycles + 3)
    assert daemon.status()["faults"][-1] | {"at": 0} == {
        "at": 0,
        "what": "journal",
        "detail": "No space left on device",
    }
    # Moved away by an operator who needs the room; the daemon begins a new file.
    kept = journal.read_bytes()
    journal.unlink()
    ballast.unlink()
    wait_for("the journal being written again", lambda: daemon.total("vramscope_journal_up") == 1)
    written = daemon.total("vramscope_journal_events_written_total") or 0
    wait_for("events", lambda: (daemon.total("vramscope_journal_events_written_total") or 0) > written)
    assert daemon.total("vramscope_journal_events_dropped_total") == 0
    assert daemon.stop() == 0

    ended = [line["cycle"] for part in (kept, journal.read_bytes()) for line in _ended(part)]
    assert ended == list(range(1, len(ended) + 1)), "every cycle is accounted for, once"


def _ended(content: bytes) -> list[dict[str, int]]:
    told = [json.loads(line) for line in content.splitlines()]
    return [line for line in told if line["event"] == "cycle_ended"]


@pytest.mark.parametrize("wrong", ["directory", "link", "missing/run.jsonl", "foreign"])
def test_a_journal_that_can_never_be_is_told_at_once(wrong: str, tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    (tmp_path / "foreign").write_text("dear diary\n")
    command = [sys.executable, "-m", "vramscope", "run", TINY, "--listen", "127.0.0.1:0", "--journal", tmp_path / wrong]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (ended.returncode, ended.stdout) == (2, "")
    (line,) = ended.stderr.splitlines()
    assert line.startswith(f"vramscope: --journal {tmp_path / wrong}: ")

"""What somebody does to the journal while a daemon writes it, and the account of what is in it at the end."""

import json
import resource
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from tests.chaos.faults import Fault, Stage
from tests.daemon import wait_for

WRITTEN, DROPPED = "vramscope_journal_events_written_total", "vramscope_journal_events_dropped_total"
TORN = b'{"schema": 1, "event": "cycle_en'


def _grows(stage: Stage, metric: str) -> None:
    before = stage.daemon.total(metric) or 0
    wait_for(f"more {metric}", lambda: (stage.daemon.total(metric) or 0) > before)


def full_disk(stage: Stage) -> None:
    """As a full disk does, and with no need of one: a write ends in the middle of a line, and the next one fails.

    What is too large is EFBIG here and not ENOSPC (getrlimit(2)); tests/e2e/test_journal.py has a disk.
    """
    pid = stage.daemon.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (stage.journal.stat().st_size + 100, before[1]))
    wait_for("its complaint", lambda: stage.daemon.total("vramscope_journal_up") == 0)
    _grows(stage, DROPPED)
    stage.good_cycle()
    resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    wait_for("its recovery", lambda: stage.daemon.total("vramscope_journal_up") == 1)
    _grows(stage, WRITTEN)


def journal_rotated_by_somebody(stage: Stage) -> None:
    stage.journal.rename(_aside(stage, "rotated"))
    wait_for("a new file", stage.journal.exists)


def journal_removed(stage: Stage) -> None:
    """The account needs what was in it, which is why it has another name first."""
    _aside(stage, "removed").hardlink_to(stage.journal)
    stage.journal.unlink()
    wait_for("a new file", stage.journal.exists)


def journal_torn(stage: Stage) -> None:
    """Somebody leaves half a line at the end of the file."""
    with stage.journal.open("ab") as stream:
        stream.write(TORN)
    stage.torn += 1
    _grows(stage, WRITTEN)


def _aside(stage: Stage, what: str) -> Path:
    names = (stage.journal.with_name(f"{what}-{number}.jsonl") for number in count(1))
    return next(path for path in names if not path.exists())


JOURNAL_FAULTS: tuple[Fault, ...] = (full_disk, journal_rotated_by_somebody, journal_removed, journal_torn)


@dataclass(frozen=True, kw_only=True)
class Account:
    """What all files of a journal tell together."""

    started: int
    ended: dict[str, int]
    dropped: int
    damaged: int
    files: int


def read(directory: Path) -> Account:
    """Every line of every file; those that only repeat what an earlier file has are passed over."""
    started, dropped, damaged = 0, 0, 0
    ended: Counter[str] = Counter()
    files = [path for path in directory.iterdir() if path.is_file()]
    for line in _lines(files):
        if line is None:
            damaged += 1
        elif line["event"] == "cycle_ended":
            ended[line["outcome"]] += 1
        elif line["event"] == "journal_gap":
            dropped += line["dropped"]
        else:
            started += line["event"] == "cycle_started" and not line.get("again")
    return Account(started=started, ended=dict(ended), dropped=dropped, damaged=damaged, files=len(files))


def _lines(files: list[Path]) -> Iterator[dict | None]:
    for path in files:
        for line in path.read_bytes().split(b"\n"):
            try:
                yield json.loads(line) if line else {"event": ""}
            except ValueError:
                yield None

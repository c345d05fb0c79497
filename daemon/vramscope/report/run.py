"""Reads one run out of a journal that may hold many."""

from dataclasses import dataclass
from pathlib import Path

from vramscope.journal.lines import JournalOpened
from vramscope.journal.reader import JournalError, JournalReader
from vramscope.report.story import RunStory
from vramscope.units import printable


@dataclass(frozen=True, kw_only=True)
class ReadRun:
    """A run, how many its journal holds, and what a reader has to know about how complete it is."""

    path: Path
    story: RunStory
    runs: int
    notes: tuple[str, ...]


def read_run(path: Path, number: int | None = None) -> ReadRun:
    """The run `number` of a journal, counted from 1; None is the last. Raises JournalError."""
    reader = JournalReader(path)
    story: RunStory | None = None
    wanted: RunStory | None = None
    runs = 0
    for record in reader.records():
        event = record.event
        if event is None:
            continue
        if story is None or (isinstance(event, JournalOpened) and not record.again):
            runs += 1
            story = RunStory(runs, event.at)
            wanted = story if number in (None, runs) else wanted
        if story is wanted:
            story.apply(event)
    if wanted is None:
        name = printable(str(path))
        if number is not None and runs:
            raise JournalError(f"--run {number}: {name} holds {runs} run{'' if runs == 1 else 's'}")
        raise JournalError(f"{name}: no event of the journal is complete yet")
    return ReadRun(path=path, story=wanted, runs=runs, notes=tuple(_notes(reader, wanted, runs)))


def _notes(reader: JournalReader, story: RunStory, runs: int) -> list[str]:
    notes = []
    if story.number == 1 and not story.store.state.plan.sha256:
        notes.append("the run's beginning is not in the journal")
    if story.gaps:
        times = "once" if story.gaps == 1 else f"{story.gaps} times"
        missing = "1 event is" if story.lost_events == 1 else f"{story.lost_events:,} events are"
        notes.append(f"{times} nothing could be written for too long: {missing} missing")
    if reader.damaged:
        lines = "1 line is" if reader.damaged == 1 else f"{reader.damaged:,} lines are"
        notes.append(f"{lines} damaged and passed over")
    if reader.foreign:
        lines = "1 line is" if reader.foreign == 1 else f"{reader.foreign:,} lines are"
        notes.append(f"{lines} of another schema than this vramscope reads, and passed over")
    if reader.unknown:
        events = "1 event is" if reader.unknown == 1 else f"{reader.unknown:,} events are"
        notes.append(f"{events} of a kind that only a newer vramscope knows")
    if not story.is_closed:
        last = story.number == runs
        torn = ", and its last line is not complete" if last and reader.is_torn else ""
        how = "the run is not over, or ended without a word" if last else "the run ended without a word"
        notes.append(f"{how}{torn}")
    return notes

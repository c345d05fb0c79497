"""The writer and a place that cannot be written: a directory in the way of the file, and a disk that is full."""

import contextlib
import logging
import subprocess
import threading
import time

import pytest

from vramscope.events import CycleEnded, CycleStarted, Outcome
from vramscope.journal.file import JournalFile, Limits
from vramscope.journal.lines import JournalClosed, JournalGap, JournalOpened
from vramscope.journal.reader import JournalReader
from vramscope.journal.writer import STUCK, JournalWriter

from ..daemon import wait_for  # noqa: TID252 - as above
from ..picture import READY, back_and_gone, until_on_device  # noqa: TID252 - tests are not packages

# A disk that others keep busy may take its time with the last write.
PATIENCE_SECONDS = 60.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.jsonl"


@pytest.fixture
def begin(path):
    begun = []

    def begin(file_bytes=1 << 20, files=3, **options):
        file = JournalFile(path, Limits(file_bytes=file_bytes, files=files))
        file.start()
        writer = JournalWriter(file, retry_seconds=0.05, **options)
        writer.start()
        begun.append(writer)
        return writer

    yield begin
    for writer in begun:
        writer.close(PATIENCE_SECONDS)


def tell(writer, *stories):
    for story in stories:
        for event in story:
            writer.on_event(event)


def cycles(first, last):
    return [CycleStarted(at=float(number), cycle=number) for number in range(first, last + 1)]


def events(path):
    return [record.event for record in JournalReader(path).records()]


def told(path):
    return [event.cycle for event in events(path) if isinstance(event, CycleStarted)]


def test_a_run_is_in_the_journal_from_its_head_to_its_end(begin, path):
    writer = begin()
    tell(writer, until_on_device(), back_and_gone())
    assert writer.close(PATIENCE_SECONDS)
    found = events(path)
    assert isinstance(found[0], JournalOpened)
    assert found[0].versions["vramscope"]
    assert isinstance(found[-1], JournalClosed)
    assert READY in found
    health = writer.health()
    assert (health.reason, health.written, health.dropped) == ("", len(found) - 2, 0)


def test_a_second_run_is_appended(begin, path):
    for _ in range(2):
        writer = begin()
        tell(writer, cycles(1, 2))
        assert writer.close(PATIENCE_SECONDS)
    assert told(path) == [1, 2, 1, 2]
    assert sum(isinstance(event, JournalOpened) for event in events(path)) == 2


def test_the_newest_file_can_be_read_without_those_that_are_gone(begin, path):
    writer = begin(file_bytes=1000, files=1)
    ended = CycleEnded(at=4.0, cycle=1, outcome=Outcome.SUCCEEDED, seconds=1.0)
    tell(writer, [READY], cycles(1, 1), [ended], cycles(2, 40))
    assert writer.close(PATIENCE_SECONDS)
    assert len(list(path.parent.iterdir())) == 1
    found = events(path)
    assert isinstance(found[0], JournalOpened)
    assert found[1] == READY
    assert found[-2] == CycleStarted(at=40.0, cycle=40)
    assert ended not in found


def test_rotated_files_together_tell_every_event_once(begin, path):
    writer = begin(file_bytes=3000, files=20)
    tell(writer, [READY], cycles(1, 200))
    assert writer.close(PATIENCE_SECONDS)
    assert len(list(path.parent.iterdir())) > 3
    assert told(path) == list(range(1, 201))
    assert sum(isinstance(event, JournalOpened) for event in events(path)) == 1


def obstruct(path):
    """Put a directory where the journal is: nothing can be written until it is gone."""
    path.rename(path.with_name("aside"))
    path.mkdir()


def clear(path):
    path.rmdir()


def test_what_cannot_be_written_waits_and_is_written_later(begin, path, caplog):
    writer = begin()
    tell(writer, cycles(1, 1))
    wait_for("the first event", lambda: writer.health().written == 1)
    obstruct(path)
    tell(writer, cycles(2, 5))
    reason = wait_for("a fault", lambda: writer.health().reason)
    assert reason == "Is a directory"
    clear(path)
    wait_for("the rest", lambda: writer.health().written == 5)
    assert writer.health().reason == ""
    with caplog.at_level(logging.WARNING):
        assert writer.close(PATIENCE_SECONDS)
    assert caplog.records == []
    assert told(path) == [1, 2, 3, 4, 5], "the new file repeats the cycle that ran"


def test_what_does_not_fit_is_counted_and_the_journal_says_so(begin, path):
    writer = begin(waiting_limit=3)
    obstruct_at_once(writer, path)
    tell(writer, cycles(2, 2))
    wait_for("a fault", lambda: writer.health().reason)  # one event is on its way, and three can wait
    tell(writer, cycles(3, 30))
    dropped = writer.health().dropped
    assert dropped == 25
    clear(path)
    wait_for("what was kept", lambda: writer.health().written == 30 - dropped)
    tell(writer, cycles(31, 31))
    assert writer.close(PATIENCE_SECONDS)
    gaps = [event for event in events(path) if isinstance(event, JournalGap)]
    assert [gap.dropped for gap in gaps] == [dropped]
    assert gaps[0].since < gaps[0].at == 31.0
    assert told(path)[-1] == 31


def obstruct_at_once(writer, path):
    tell(writer, cycles(1, 1))
    wait_for("the first event", lambda: writer.health().written == 1)
    obstruct(path)


def test_a_run_that_ends_while_nothing_can_be_written_ends_all_the_same(begin, path, caplog):
    writer = begin()
    obstruct_at_once(writer, path)
    tell(writer, cycles(2, 9))
    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        assert writer.close(PATIENCE_SECONDS)
    assert time.monotonic() - began < PATIENCE_SECONDS
    (record,) = caplog.records
    assert (record.message, record.events_lost) == ("journal_incomplete", 9), "and the line that says it is closed"
    assert told(path.with_name("aside")) == [1]


def test_an_event_that_is_no_json_is_counted_and_harms_no_other(begin, path):
    writer = begin()
    tell(writer, [CycleStarted(at=float("nan"), cycle=1)], cycles(2, 2))
    assert writer.close(PATIENCE_SECONDS)
    assert told(path) == [2]
    assert writer.health().dropped == 1


def test_a_journal_that_is_removed_underneath_is_made_anew(begin, path):
    writer = begin()
    tell(writer, [READY], cycles(1, 1))
    wait_for("the first events", lambda: writer.health().written == 2)
    path.unlink()
    tell(writer, cycles(2, 2))
    assert writer.close(PATIENCE_SECONDS)
    found = events(path)
    assert isinstance(found[0], JournalOpened)
    assert READY in found
    assert told(path) == [1, 2], "the cycle that runs is repeated"


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def test_on_a_full_disk_nothing_is_torn_and_all_is_written_when_there_is_room(small_disk):
    path = small_disk / "run.jsonl"
    (small_disk / "ballast").write_bytes(bytes(48 << 10))
    file = JournalFile(path, Limits(file_bytes=1 << 20, files=2))
    file.start()
    writer = JournalWriter(file, retry_seconds=0.05)
    writer.start()
    tell(writer, cycles(1, 500))
    reason = wait_for("a full disk", lambda: writer.health().reason)
    assert reason == "No space left on device"
    assert all(line.endswith(b"}\n") for line in path.read_bytes().splitlines(keepends=True))
    assert writer.health().written < 500
    (small_disk / "ballast").unlink()
    wait_for("the rest", lambda: writer.health().written == 500)
    assert writer.close(PATIENCE_SECONDS)
    assert told(path) == list(range(1, 501))
    assert JournalReader(path).damaged == 0


def test_a_daemon_starts_on_a_full_disk(small_disk):
    (small_disk / "ballast").touch()
    with contextlib.suppress(OSError), (small_disk / "ballast").open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(4096))
    file = JournalFile(small_disk / "run.jsonl", Limits(file_bytes=1 << 20, files=2))
    file.start()
    writer = JournalWriter(file, retry_seconds=0.05)
    writer.start()
    tell(writer, cycles(1, 2))
    wait_for("a full disk", lambda: writer.health().reason)
    (small_disk / "ballast").unlink()
    wait_for("the rest", lambda: writer.health().written == 2)
    assert writer.close(PATIENCE_SECONDS)


class Stuck(JournalFile):
    """A file on a disk that does not answer until it is told to."""

    def __init__(self, path, limits):
        super().__init__(path, limits)
        self.answers = threading.Event()

    def append(self, line):
        self.answers.wait(60)
        super().append(line)


def test_a_disk_that_does_not_answer_shows_and_keeps_nobody_waiting(path):
    file = Stuck(path, Limits(file_bytes=1 << 20, files=2))
    file.start()
    writer = JournalWriter(file, patience_seconds=0.1)
    writer.start()
    tell(writer, cycles(1, 3))
    assert wait_for("the fault", lambda: writer.health().reason) == STUCK
    assert not writer.close(0.1)
    file.answers.set()
    assert writer.close(PATIENCE_SECONDS)
    assert told(path) == [1, 2, 3]

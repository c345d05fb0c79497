import os
import threading

import pytest

from vramscope.errors import ExitCode
from vramscope.events import CycleStarted
from vramscope.journal.lines import JournalOpened, encode
from vramscope.journal.reader import FOREIGN_LINES, LINE_LIMIT_BYTES, JournalError, JournalReader

OPENED = JournalOpened(at=1.0, versions={})


def cycle(number):
    return CycleStarted(at=float(number), cycle=number)


def lines(*numbers, again=()):
    repeated = b"".join(encode(cycle(number), again=True) for number in again)
    return repeated + b"".join(encode(cycle(number)) for number in numbers)


def read(path):
    reader = JournalReader(path)
    return [record.event.cycle for record in reader.records()], reader


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "run.jsonl"


def complaint(path):
    with pytest.raises(JournalError) as caught:
        read(path)
    assert caught.value.exit_code == ExitCode.USER
    return str(caught.value)


def test_rotated_files_are_read_oldest_first_without_what_they_repeat(journal):
    for suffix, content in ((".2", lines(3, 4, again=[2])), (".1", lines(5, again=[2, 4])), ("", lines(6, again=[4]))):
        journal.with_name(journal.name + suffix).write_bytes(content)
    found, reader = read(journal)
    assert found == [2, 3, 4, 5, 6], "what the oldest repeats is not known from elsewhere"
    assert reader.files == 3
    assert read(journal.with_name("run.jsonl.1"))[0] == [2, 4, 5], "a single one of them can be named, too"


def test_damaged_lines_are_passed_over_and_counted(journal):
    journal.write_bytes(lines(1) + b'{"schema": 1, "ev\n' + b"\x00" * 99 + b"\n\xff\n" + lines(2))
    found, reader = read(journal)
    assert (found, reader.damaged, reader.is_torn) == ([1, 2], 3, False)


@pytest.mark.parametrize("length", [1, 11, 30])
def test_a_last_line_that_is_not_complete_is_no_event(journal, length):
    journal.write_bytes(lines(1) + lines(2)[:length])
    found, reader = read(journal)
    assert (found, reader.damaged, reader.is_torn) == ([1], 0, True)


def test_a_journal_of_which_only_a_part_of_a_line_exists_holds_nothing(journal):
    journal.write_bytes(lines(1)[:20])
    assert read(journal)[0] == []


def test_a_line_that_is_too_long_is_damaged_and_no_more_than_its_limit_is_held(journal):
    journal.write_bytes(lines(1) + b"x" * (2 * LINE_LIMIT_BYTES + 5) + b"\n" + lines(2))
    found, reader = read(journal)
    assert (found, reader.damaged) == ([1, 2], 1)


def test_unknown_events_are_counted(journal):
    journal.write_bytes(lines(1) + b'{"schema": 1, "event": "later", "at": 1}\n')
    found, reader = read(journal)
    assert (found, reader.unknown) == ([1], 1)


def test_what_is_no_journal_is_one_clear_error(journal, tmp_path):
    assert complaint(journal) == f"{journal}: cannot be read: No such file or directory"
    assert "expected a file" in complaint(tmp_path) or "Is a directory" in complaint(tmp_path)
    journal.write_bytes(b"")
    assert complaint(journal) == f"{journal}: the journal is empty (no run has written to it yet)"
    foreign = f"{journal}: this is no journal of vramscope (`run --journal FILE` writes one)"
    for content in (b"hello\n", b"hello", b'{"a": 1}\n', b"\x00" * 5000, b"x\n" * (FOREIGN_LINES + 5) + lines(1)):
        journal.write_bytes(content)
        assert complaint(journal) == foreign
    journal.write_bytes(b"torn\n" + 30 * b'{"schema": 2, "event": "cycle_started"}\n')
    assert complaint(journal) == f"{journal}:2: written by a newer vramscope: schema 2, and this one reads 1"
    os.mkfifo(tmp_path / "pipe")
    assert "expected a file" in complaint(tmp_path / "pipe")


def test_a_hostile_name_is_printed_harmlessly(tmp_path):
    assert "\x1b" not in complaint(tmp_path / "\x1b[31mred")


def test_a_journal_that_grows_while_it_is_read_is_read_up_to_where_it_was(journal):
    journal.write_bytes(encode(OPENED) + lines(1))
    more = threading.Event()
    reader = JournalReader(journal)
    found = []
    for record in reader.records():
        if not more.is_set():
            with journal.open("ab") as stream:
                stream.write(lines(2, 3))
            more.set()
        found.append(record.event)
    assert found == [OPENED, cycle(1)]


def test_a_file_that_is_renamed_between_two_openings_is_read_once(journal):
    journal.write_bytes(lines(1, 2))
    os.link(journal, journal.with_name("run.jsonl.1"))
    assert read(journal)[0] == [1, 2]

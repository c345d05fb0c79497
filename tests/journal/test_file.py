import os
import subprocess
import sys
from pathlib import Path

import pytest

from vramscope.errors import ExitCode, UsageError
from vramscope.events import CycleStarted
from vramscope.journal.file import JournalFile, Limits
from vramscope.journal.lines import HEAD, encode

LINE = encode(CycleStarted(at=1.0, cycle=1))


@pytest.fixture
def make(tmp_path):
    made = []

    def make(path=None, file_bytes=1 << 20, files=3):
        made.append(JournalFile(path or tmp_path / "run.jsonl", Limits(file_bytes=file_bytes, files=files)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def refused(file):
    with pytest.raises(UsageError) as caught:
        file.start()
    assert caught.value.exit_code == ExitCode.USAGE
    assert "\n" not in str(caught.value)
    return str(caught.value).partition(f"--journal {file.path}: ")[2]


def test_what_is_there_is_kept_and_written_after(make, tmp_path):
    for _ in range(2):
        file = make()
        file.start()
        file.append(LINE)
        file.close()
    assert (tmp_path / "run.jsonl").read_bytes() == 2 * LINE
    assert (tmp_path / "run.jsonl").stat().st_mode & 0o777 == 0o640 & ~_umask()


def _umask():
    now = os.umask(0)
    os.umask(now)
    return now


@pytest.mark.parametrize("torn", [LINE + LINE[:30], LINE[:30], LINE[:5]])
def test_a_torn_last_line_is_ended_before_another_is_written(make, tmp_path, torn):
    (tmp_path / "run.jsonl").write_bytes(torn)
    file = make()
    file.start()
    file.append(LINE)
    assert (tmp_path / "run.jsonl").read_bytes() == torn + b"\n" + LINE
    file.close()
    make().start()  # and it is known as a journal again


@pytest.mark.parametrize("spoil", [lambda content: content + LINE[:30], lambda content: content[:-5]])
def test_a_line_that_somebody_tears_meanwhile_costs_no_other(make, tmp_path, spoil):
    path = tmp_path / "run.jsonl"
    file = make()
    file.start()
    file.append(LINE)
    path.write_bytes(spoiled := spoil(LINE))
    assert file.open(), "it begins anew"
    file.append(LINE)
    assert path.read_bytes() == spoiled + b"\n" + LINE
    assert not file.open(), "and is as it was left"


def test_a_file_that_somebody_empties_begins_anew(make, tmp_path):
    """As logrotate's copytruncate does."""
    path = tmp_path / "run.jsonl"
    file = make()
    file.start()
    file.append(LINE)
    path.write_bytes(b"")
    assert file.open()
    file.append(LINE)
    assert path.read_bytes() == LINE


@pytest.mark.parametrize(
    "content", [b"dear diary\n", b'{"schema"; 1}\n', b"\n", b"\n\n" + LINE, b"\x89PNG\r\n", b"{}\n"]
)
def test_a_file_of_somebody_else_is_left_alone(make, tmp_path, content):
    (tmp_path / "run.jsonl").write_bytes(content)
    assert refused(make()) == "it holds something else than a journal; name another file"
    assert (tmp_path / "run.jsonl").read_bytes() == content


def test_a_journal_of_another_schema_is_left_alone(make, tmp_path):
    (tmp_path / "run.jsonl").write_bytes(HEAD + b'2, "event": "x", "at": 1}\n')
    assert "schema 2, and this vramscope writes 1" in refused(make())


def test_paths_that_can_never_be_a_journal_are_told_apart(make, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")
    assert refused(make(tmp_path / "link")) == (
        "expected a file, got a symbolic link; a full journal is renamed, so name the file itself"
    )
    assert not (tmp_path / "target").exists()
    assert refused(make(tmp_path)) == "expected a file, got a directory"
    assert refused(make(tmp_path / "no/run")) == f"there is no directory {tmp_path / 'no'}; make it first"
    assert refused(make(tmp_path / "pipe")) == "expected a regular file"
    assert refused(make(Path("/dev/null"))) == "expected a regular file"
    (tmp_path / "file").write_bytes(b"")
    assert refused(make(tmp_path / "file/run")) == "Not a directory"


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc/sys/kernel").exists(), reason="needs a read-only directory")
def test_a_place_without_permission_is_told(make):
    place = Path("/proc/sys/kernel/run.jsonl") if os.geteuid() == 0 else Path("/etc/run.jsonl")
    assert refused(make(place)) in {"Permission denied", "Read-only file system", "Operation not permitted"} or (
        "there is no directory" in refused(make(place))
    )


def test_two_writers_of_one_journal_are_one_too_many(make):
    make().start()
    assert refused(make()) == "another process writes this journal; name another file"


def fill(file, count):
    for _ in range(count):
        if not file.has_room(len(LINE)):
            file.rotate()
            file.open()
        file.append(LINE)


def test_full_files_are_put_aside_and_the_oldest_is_removed(make, tmp_path):
    file = make(file_bytes=3 * len(LINE), files=3)
    file.start()
    fill(file, 20)
    sizes = {path.name: path.stat().st_size // len(LINE) for path in tmp_path.iterdir()}
    assert sizes == {"run.jsonl": 2, "run.jsonl.1": 3, "run.jsonl.2": 3}


def test_a_single_file_begins_anew_when_it_is_full(make, tmp_path):
    file = make(file_bytes=3 * len(LINE), files=1)
    file.start()
    fill(file, 8)
    assert [path.name for path in tmp_path.iterdir()] == ["run.jsonl"]


def test_a_lower_limit_removes_what_a_higher_one_has_left(make, tmp_path):
    file = make(file_bytes=len(LINE), files=6)
    file.start()
    fill(file, 9)
    file.close()
    assert len(list(tmp_path.iterdir())) == 6
    file = make(file_bytes=len(LINE), files=2)
    file.start()
    fill(file, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.jsonl", "run.jsonl.1"]


def test_files_that_are_there_are_not_lost_by_a_rotation_that_was_cut_short(make, tmp_path):
    (tmp_path / "run.jsonl.2").write_bytes(LINE)
    file = make(file_bytes=len(LINE), files=3)
    file.start()
    fill(file, 2)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.jsonl", "run.jsonl.1", "run.jsonl.2"]


def test_a_file_that_was_moved_away_or_removed_is_made_anew(make, tmp_path):
    file = make()
    file.start()
    file.append(LINE)
    assert not file.open()
    file.path.rename(tmp_path / "old")
    assert file.open()
    file.append(LINE)
    assert file.path.read_bytes() == LINE
    file.path.unlink()
    assert file.open()


def test_a_line_for_which_there_is_no_room_leaves_nothing_behind(tmp_path):
    """RLIMIT_FSIZE lets a part of the line be written, as a disk does that becomes full."""
    script = f"""
import errno, pathlib, resource, signal
from vramscope.journal.file import JournalFile, Limits
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
file = JournalFile(pathlib.Path({str(tmp_path / "run.jsonl")!r}), Limits(file_bytes=1 << 20, files=2))
file.start()
line = {LINE!r}
file.append(line)
resource.setrlimit(resource.RLIMIT_FSIZE, (len(line) + 10, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
try:
    file.append(line)
except OSError as error:
    assert error.errno == errno.EFBIG
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
file.append(line)
"""
    subprocess.run([sys.executable, "-c", script], check=True)
    assert (tmp_path / "run.jsonl").read_bytes() == 2 * LINE

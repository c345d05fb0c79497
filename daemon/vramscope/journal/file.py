"""The file of the journal: appended to, rotated by size, and never left with half a line that another one follows.

`FILE` is written; a full one becomes `FILE.1`, that one `FILE.2`, and so on; the oldest is removed. Every line reaches
the kernel before the next is taken, so the end of the daemon loses nothing. What is older than SYNC_SECONDS is on the
disk (fsync), so a power cut costs no more than that.
"""

import errno
import fcntl
import os
import stat
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from vramscope.errors import UsageError
from vramscope.journal.lines import HEAD, SCHEMA, schema_of

MODE = 0o640
FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# The file system is full, or the user's part of it: it may have room again later.
FULL = {errno.ENOSPC, errno.EDQUOT}
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How large a file may become, in bytes, and how many files there may be, with the one that is written."""

    file_bytes: int
    files: int


class JournalFile:
    """The open file. Made by `start`; every other method raises OSError, and can be called again after that."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path = path
        self._limits = limits
        self._descriptor: int | None = None
        self._size = 0
        self._is_dirty = False

    def start(self) -> None:
        """Open the file, or leave that for later where the disk is full. Raises UsageError if it can never be."""
        try:
            self.open()
        except OSError as error:
            if error.errno not in FULL:
                raise UsageError(f"--journal {self.path}: {_why(error, self.path)}") from None

    def open(self) -> bool:
        """Open the file where it is not; whether something was done, so that the file should begin with its head."""
        if self._descriptor is not None and self._is_in_place(self._descriptor):
            return False
        self.close()
        descriptor = os.open(self.path, FLAGS, MODE)
        try:
            self._check(descriptor)
            self._size = self._mended(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    def append(self, line: bytes) -> None:
        """Write a whole line, or none of it."""
        if self._descriptor is None:
            raise OSError(errno.EBADF, "the journal is not open")
        # Somebody may have made the file shorter meanwhile; it must not be made longer again by taking back.
        before, written = os.fstat(self._descriptor).st_size, 0
        try:
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError:
            self._take_back(before)
            raise
        self._size = before + written
        self._is_dirty = True

    def has_room(self, nbytes: int) -> bool:
        """Whether so many bytes more stay within the limit; an empty file has room for anything."""
        return not self._size or self._size + nbytes <= self._limits.file_bytes

    def rotate(self) -> None:
        """Put the full file aside. The next `open` begins a new one."""
        self.sync()
        oldest = self._limits.files - 1
        free = next(number for number in count(1) if not os.path.lexists(_numbered(self.path, number)))
        for number in range(oldest, free):  # the oldest, and what a higher limit has left
            if number:
                _numbered(self.path, number).unlink()
        for number in range(min(free, oldest) - 1, 0, -1):
            _numbered(self.path, number).rename(_numbered(self.path, number + 1))
        if oldest:
            self.path.rename(_numbered(self.path, 1))
        else:
            self.path.unlink()
        self.close()

    def sync(self) -> None:
        """Have the disk hold what was written."""
        if self._descriptor is not None and self._is_dirty:
            os.fsync(self._descriptor)
            self._is_dirty = False

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)

    def _is_in_place(self, descriptor: int) -> bool:
        """Whether the path still leads to the open file, and that holds what was written to it.

        Somebody may have moved or removed it, or made it shorter or longer, so that it ends in the middle of a line.
        """
        try:
            here, ours = self.path.lstat(), os.fstat(descriptor)
        except FileNotFoundError:
            return False
        return (here.st_dev, here.st_ino, here.st_size) == (ours.st_dev, ours.st_ino, self._size)

    def _check(self, descriptor: int) -> None:
        mode = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "expected a regular file")
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
        start, *more = os.pread(descriptor, 64, 0).split(b"\n")
        found = schema_of(start)
        if found is not None and found != SCHEMA:
            text = f"it is a journal of schema {found}, and this vramscope writes {SCHEMA}; name another file"
            raise OSError(errno.EINVAL, text)
        is_torn = HEAD.startswith(start) and (start or not more)  # or the file is empty
        if not start.startswith(HEAD) and not is_torn:
            raise OSError(errno.EINVAL, "it holds something else than a journal; name another file")

    def _mended(self, descriptor: int) -> int:
        """The file's size, after a line end where the last line has none: it was torn when a writer died."""
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            size += os.write(descriptor, b"\n")
        return size

    def _take_back(self, size: int) -> None:
        """Remove the part of a line that was written; where even that fails, opening the file again mends it."""
        try:
            if self._descriptor is not None:
                os.ftruncate(self._descriptor, size)
        except OSError:
            self.close()


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.name}.{number}")


def _why(error: OSError, path: Path) -> str:
    """What is wrong with a path, and what to do."""
    match error.errno:
        case errno.ELOOP:
            return "expected a file, got a symbolic link; a full journal is renamed, so name the file itself"
        case errno.EISDIR:
            return "expected a file, got a directory"
        case errno.ENOENT:
            return f"there is no directory {path.parent}; make it first"
        case errno.ENXIO:
            return "expected a regular file"
        case errno.EWOULDBLOCK:
            return "another process writes this journal; name another file"
        case _:
            return error.strerror or str(error)

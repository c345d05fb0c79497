"""Reads a journal: the file and those that were rotated away, oldest first, line by line, whatever their size.

A line that is damaged, or of another schema, is passed over and counted; so is the last one where it is not complete,
because it is being written, or its writer died. A file that holds no line that this release reads is an error.
"""

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import BinaryIO

from vramscope.errors import VramscopeError
from vramscope.journal.lines import HEAD, LineError, Record, SchemaError, decode
from vramscope.units import printable

LINE_LIMIT_BYTES = 4 << 20
# A file with so many lines at its start and no event among them is no journal.
FOREIGN_LINES = 20


class JournalError(VramscopeError):
    """A file that cannot be read as a journal."""


class JournalReader:
    """One pass over a journal. What was passed over is counted as it goes.

    That are `damaged` lines, those of a `foreign` schema, and events of an `unknown` kind; `is_torn` says that the last
    line is not whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files = 0
        self.lines = self.damaged = self.unknown = self.foreign = 0
        self.is_torn = False
        self._other_schema = ""  # the first such line of the file that is being read

    def records(self) -> Iterator[Record]:
        """Every event that is known, in the order in which it happened. Raises JournalError."""
        with ExitStack() as stack:
            opened = _open_all(self.path, stack)
            self.files = len(opened)
            if not any(size for _, _, size in opened):
                raise JournalError(f"{_name(self.path)}: the journal is empty", hint="no run has written to it yet")
            is_first = True
            for path, stream, size in reversed(opened):
                for record in self._of_file(path, stream, size):
                    # What a file repeats of earlier ones is news only where those are gone.
                    if record.again and not is_first:
                        continue
                    is_first = is_first and record.again
                    yield record

    def _of_file(self, path: Path, stream: BinaryIO, size: int) -> Iterator[Record]:
        """The events among the first `size` bytes, which is what the file had when it was opened."""
        found, left = False, size
        self._other_schema = ""
        for number in count(1):
            if left <= 0:
                break
            line = stream.readline(min(LINE_LIMIT_BYTES, left))
            if not line:
                break
            left -= len(line)
            if not line.endswith(b"\n"):
                if left <= 0:
                    self.is_torn = self.is_torn or path == self.path
                    found = found or line.startswith(HEAD) or HEAD.startswith(line)
                else:
                    self.damaged += 1
                    left -= _skip_line(stream, left)
            elif (record := self._decoded(path, number, line)) is not None:
                found = True
                if record.event is not None:
                    yield record
            if number >= FOREIGN_LINES and not (found or self._other_schema):
                break
        if size and not found:
            raise self._nothing_in(path)

    def _nothing_in(self, path: Path) -> JournalError:
        if self._other_schema:
            return JournalError(self._other_schema)
        return JournalError(f"{_name(path)}: this is no journal of vramscope", hint="`run --journal FILE` writes one")

    def _decoded(self, path: Path, number: int, line: bytes) -> Record | None:
        self.lines += 1
        try:
            record = decode(line)
        except LineError:
            self.damaged += 1
            return None
        except SchemaError as error:
            self.foreign += 1
            self._other_schema = self._other_schema or f"{_name(path)}:{number}: {error}"
            return None
        self.unknown += record.event is None
        return record


def _open_all(path: Path, stack: ExitStack) -> list[tuple[Path, BinaryIO, int]]:
    """The files, newest first, with their sizes. One that is renamed meanwhile is met twice, and taken once."""
    opened: list[tuple[Path, BinaryIO, int]] = []
    seen: set[tuple[int, int]] = set()
    for number in count(0):
        each = path.with_name(f"{path.name}.{number}") if number else path
        if number and not each.exists():
            break
        try:
            descriptor = os.open(each, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            stream = stack.enter_context(os.fdopen(descriptor, "rb"))
        except OSError as error:
            raise JournalError(f"{_name(each)}: cannot be read: {error.strerror}") from None
        about = os.fstat(descriptor)
        if not stat.S_ISREG(about.st_mode):
            raise JournalError(f"{_name(each)}: expected a file that `run --journal FILE` has written")
        if (identity := (about.st_dev, about.st_ino)) not in seen:
            seen.add(identity)
            opened.append((each, stream, about.st_size))
    return opened


def _skip_line(stream: BinaryIO, left: int) -> int:
    """Pass over the rest of a line that is too long; how many bytes that were."""
    skipped = 0
    while skipped < left:
        part = stream.readline(min(LINE_LIMIT_BYTES, left - skipped))
        skipped += len(part)
        if not part or part.endswith(b"\n"):
            break
    return skipped


def _name(path: Path) -> str:
    return printable(str(path))

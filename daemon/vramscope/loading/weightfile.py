"""One file of weights: read from the page cache what is there, and past the cache (O_DIRECT) what is not.

A read through the cache copies a cold file twice, and drives other files out of memory. Which pages are cached tells
mincore(2); it says "all" of a file that the caller neither owns nor may write to, which is then read through the cache.
"""

import contextlib
import ctypes
import mmap
import os
from pathlib import Path

from vramscope.anatomy.header import identity_of
from vramscope.errors import SourceError
from vramscope.loading.halves import Halves
from vramscope.memory.rules import round_up

Identity = tuple[int, ...] | None

PAGE_BYTES = mmap.PAGESIZE
# Looking at every page of a file takes a third of the time to read it.
PROBES = 4

# mincore takes a microsecond: to let go of the interpreter's lock for it, and to wait for that again, takes longer.
_libc = ctypes.PyDLL(None)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_libc.mincore.restype = ctypes.c_int


class WeightFile:
    """An open file, used by several threads. Raises SourceError where it cannot be opened or read.

    `identity` is that of the file whose header was read, which it has to be still; None where nobody knows.
    """

    def __init__(self, path: Path, identity: Identity = None) -> None:
        self._path = path
        try:
            self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            found = identity_of(os.fstat(self._descriptor))
        except OSError as error:
            raise SourceError(f"{path}: cannot be opened: {error.strerror}") from None
        if identity not in (None, found):
            os.close(self._descriptor)
            hint = "the file was replaced during the load; load again when that is over"
            raise SourceError(f"{path} is not the file any more whose header was read", hint=hint)
        self._direct = _open_direct(path, found)
        self._direct_works = self._direct is not None
        self._pages = _Pages(self._descriptor) if self._direct_works else None

    def close(self) -> None:
        for descriptor in (self._descriptor, self._direct):
            if descriptor is not None:
                os.close(descriptor)

    def is_cached(self, offset: int, nbytes: int) -> bool:
        """Whether a part of the file is in the page cache, by a few of its pages, or has to be read through it."""
        return not self._direct_works or self._pages is None or self._pages.hold(offset, nbytes)

    def read(self, into: memoryview, offset: int) -> None:
        """Fill a buffer through the page cache."""
        done = self._preadv(into, offset) if len(into) else 0
        while done < len(into):
            done += self._preadv(into[done:], offset + done)

    def read_halves(self, into: memoryview, offset: int, native: Halves) -> tuple[float, float]:
        """Fill memory through the page cache with bfloat16 that becomes float16; returns the seconds of each."""
        try:
            got, read, converted = native.read(self._descriptor, offset, into)
        except OSError as error:
            raise self._unreadable(error) from None
        if got < len(into):
            raise self._ended(offset + got)
        return read, converted

    def read_past_cache(self, offset: int, nbytes: int, buffer: mmap.mmap) -> memoryview | None:
        """Part of the file, as a view of `buffer`, which needs two pages more; None where only `read` can get it."""
        start = offset // PAGE_BYTES * PAGE_BYTES
        end = round_up(offset + nbytes, PAGE_BYTES)
        whole = memoryview(buffer)[: end - start]
        try:
            got = os.preadv(self._direct, [whole], start) if self._direct is not None else 0
        except OSError:  # the file system took the flag and cannot do it
            self._direct_works = False
            return None
        return whole[offset - start : offset - start + nbytes] if got >= offset - start + nbytes else None

    def _preadv(self, into: memoryview, offset: int) -> int:
        try:
            got = os.preadv(self._descriptor, (into,), offset)
        except OSError as error:
            raise self._unreadable(error) from None
        if got == 0:
            raise self._ended(offset)
        return got

    def _unreadable(self, error: OSError) -> SourceError:
        return SourceError(f"{self._path}: cannot be read: {error.strerror}")

    def _ended(self, offset: int) -> SourceError:
        return SourceError(
            f"{self._path} ended at byte {offset} while its header promises more",
            hint="the file was truncated or replaced during the load; copy it again",
        )


class _Pages:
    """Which pages of an open file are in the page cache."""

    def __init__(self, descriptor: int) -> None:
        self._nbytes = os.fstat(descriptor).st_size
        # Private and writable, because ctypes wants it so; nothing is written, and no page of it is touched.
        self._mapping: mmap.mmap | None = None
        with contextlib.suppress(OSError, ValueError):
            self._mapping = mmap.mmap(descriptor, self._nbytes, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE)

    def hold(self, offset: int, nbytes: int) -> bool:
        """Whether the probed pages of a part are cached; True where nobody knows."""
        end = min(offset + nbytes, self._nbytes)
        if self._mapping is None or offset >= end:
            return True
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._mapping))
        first, last = offset // PAGE_BYTES, (end - 1) // PAGE_BYTES
        probed = {first + (last - first) * n // (PROBES - 1) for n in range(PROBES)}
        return all(_is_resident(base + page * PAGE_BYTES) for page in probed)


def _is_resident(address: int) -> bool:
    """Whether the page there is in memory. The upper bits of the answer are reserved: mincore(2)."""
    answer = ctypes.c_ubyte(1)
    failed = _libc.mincore(address, 1, ctypes.byref(answer))
    return bool(failed or answer.value & 1)


def _open_direct(path: Path, identity: Identity) -> int | None:
    """A descriptor of the same file for reads past the page cache; None where system or file system has none."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_DIRECT)
    except (OSError, AttributeError):
        return None
    if identity_of(os.fstat(descriptor)) == identity:
        return descriptor
    os.close(descriptor)
    return None

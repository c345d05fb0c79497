"""How much of a file the kernel's page cache has already: whether a load is cold or warm.

cachestat(2) tells it in under a millisecond for a gigabyte, since Linux 6.5; elsewhere mincore(2) does of a mapping, in
ten or more. Neither reads anything. Of a file that is neither ours nor open to us for writing mincore says that all of
it is there, so that nobody can watch others, and cachestat nothing; then nothing is known.
"""

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

# Pages are counted in pieces, so that the answer for a large file needs little memory.
WINDOW_BYTES = 1 << 30
_FAILED = ctypes.c_void_p(-1).value
# The same number on every architecture that torch is built for; C libraries have no function of it.
_CACHESTAT = 451


def page_cache_share(paths: Iterable[Path]) -> float | None:
    """The share of these files' bytes that a load finds in RAM, 0 to 1; None where the kernel does not tell it."""
    cached = total = 0
    try:
        for path in paths:
            present, size = _cached(path)
            cached, total = cached + present, total + size
    except (OSError, AttributeError):
        return None
    return cached / total if total else None


def _cached(path: Path) -> tuple[int, int]:
    """Bytes in the page cache and in all. Raises OSError, also where the kernel would not tell the truth."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        about = os.fstat(descriptor)
        if about.st_uid != os.geteuid() and not os.access(path, os.W_OK):
            raise PermissionError(f"{path} belongs to another user")
        present = _by_cachestat(descriptor, about.st_size)
        if present is None:
            windows = range(0, about.st_size, WINDOW_BYTES)
            present = sum(_by_mincore(descriptor, start, min(WINDOW_BYTES, about.st_size - start)) for start in windows)
        return present, about.st_size
    finally:
        os.close(descriptor)


def _by_cachestat(descriptor: int, nbytes: int) -> int | None:
    """Bytes of a whole file that are in the page cache; None where the kernel or a sandbox does not know the call."""
    extent = (ctypes.c_uint64 * 2)(0, nbytes)  # struct cachestat_range: off, len; a length of 0 is the whole file
    counted = (ctypes.c_uint64 * 5)()  # struct cachestat: nr_cache, nr_dirty, nr_writeback and two of evictions
    call = ctypes.CDLL(None).syscall
    call.restype = ctypes.c_long
    failed = call(ctypes.c_long(_CACHESTAT), ctypes.c_uint(descriptor), extent, counted, ctypes.c_uint(0))
    return None if failed else min(nbytes, counted[0] * mmap.PAGESIZE)


def _by_mincore(descriptor: int, start: int, length: int) -> int:
    """Bytes of one piece of a file that are in the page cache."""
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    library.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    library.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    address = library.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, start)
    if address == _FAILED:
        raise OSError(ctypes.get_errno(), "mmap")
    try:
        pages = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
        if library.mincore(address, length, pages):
            raise OSError(ctypes.get_errno(), "mincore")
        return min(length, pages.raw.count(1) * mmap.PAGESIZE)  # Linux leaves the other bits at 0
    finally:
        library.munmap(address, length)

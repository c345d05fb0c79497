"""How much of a file the kernel's page cache has already: whether a load is cold or warm.

mincore(2) tells it of a mapping, which reads nothing. Of a file that is neither ours nor open to us for writing the
kernel says that all of it is there, so that nobody can watch others; then nothing is known.
"""

import ctypes
import mmap
import os
from collections.abc import Iterable
from pathlib import Path

# Pages are counted in pieces, so that the answer for a large file needs little memory.
WINDOW_BYTES = 1 << 30
_FAILED = ctypes.c_void_p(-1).value


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
        windows = range(0, about.st_size, WINDOW_BYTES)
        present = sum(_window(descriptor, start, min(WINDOW_BYTES, about.st_size - start)) for start in windows)
        return present, about.st_size
    finally:
        os.close(descriptor)


def _window(descriptor: int, start: int, length: int) -> int:
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

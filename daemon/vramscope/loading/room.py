"""Memory of our own for the weights of a model, which takes no RAM before it is written to.

Touching fresh 4 KiB pages costs more than reading the file from the page cache; 2 MiB pages cost a seventh of that.
"""

import contextlib
import ctypes
import mmap

from vramscope.memory.rules import round_up

HUGE_PAGE_BYTES = 2 << 20


def address_of(memory: memoryview) -> int:
    """Where writable memory begins, which must not be empty."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


class Room:
    """`memory` is a view of zeros in anonymous memory; the system has it back when the last view of it dies.

    It begins at a 2 MiB boundary, for huge pages where the system has them. Raises MemoryError.
    """

    def __init__(self, nbytes: int) -> None:
        try:
            # Python maps shared memory unless told otherwise, and shared memory gets no transparent huge pages.
            self._mapping = mmap.mmap(-1, max(nbytes, 1) + HUGE_PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except (OSError, OverflowError) as error:
            raise MemoryError(f"the system has no {nbytes} bytes for the weights: {error}") from None
        if hasattr(mmap, "MADV_HUGEPAGE"):
            # Kernels without transparent huge pages refuse: plain pages are slower, not wrong.
            with contextlib.suppress(OSError):
                self._mapping.madvise(mmap.MADV_HUGEPAGE)
        whole = memoryview(self._mapping)
        self._start = -address_of(whole) % HUGE_PAGE_BYTES
        self.memory = whole[self._start : self._start + nbytes]

    def discard(self, start: int, end: int) -> int:
        """Give the whole huge pages between two offsets back to the system; what was in them is gone.

        Returns the offset from which on memory is still there, which is where the next call should start.
        """
        first = round_up(start, HUGE_PAGE_BYTES)
        length = end // HUGE_PAGE_BYTES * HUGE_PAGE_BYTES - first
        if length <= 0:
            return start
        self._mapping.madvise(mmap.MADV_DONTNEED, self._start + first, length)
        return first + length

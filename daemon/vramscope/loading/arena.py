"""One private piece of memory for all weights of a model, given back to the system as a whole when the last view dies.

Touching fresh 4 KiB pages costs more than reading the file from the page cache; 2 MiB pages cost a seventh of that.
"""

import contextlib
import ctypes
import mmap
from collections.abc import Iterable

import torch

from vramscope.loading.dtypes import TORCH_DTYPES
from vramscope.loading.spans import Place
from vramscope.memory.rules import round_up

HUGE_PAGE_BYTES = 2 << 20

_libc = ctypes.CDLL(None)


def trim_heap() -> None:
    """Give free memory of the C library's heap back: glibc keeps blocks of up to 32 MiB that were used once."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


class Arena:
    """`memory` is a uint8 tensor of zeros in anonymous memory, which takes no RAM before it is written to.

    `bytes` is the same memory for who reads files. It begins at a 2 MiB boundary, for huge pages where the system has
    them. Raises MemoryError.
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
        whole = torch.frombuffer(self._mapping, dtype=torch.uint8)
        self._start = -whole.data_ptr() % HUGE_PAGE_BYTES
        self.memory = whole[self._start : self._start + nbytes]
        self.bytes = memoryview(self._mapping)[self._start : self._start + nbytes]

    def view(self, place: Place) -> torch.Tensor:
        """The tensor that lies at a place."""
        return self.memory[place.offset : place.end].view(TORCH_DTYPES[place.dtype]).view(place.entry.shape)

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

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies here; one without elements lies nowhere."""
        return bool(tensor.nbytes) and 0 <= tensor.data_ptr() - self.memory.data_ptr() < len(self.memory)

    def keep_only(self, tensors: Iterable[torch.Tensor]) -> None:
        """Give back every whole huge page in which none of these tensors lies; they may lie elsewhere altogether.

        A tensor with gaps, such as a column of a matrix, lies from its first element to its last.
        """
        base, emptied = self.memory.data_ptr(), 0
        begins = ((tensor.data_ptr() - base, _extent(tensor)) for tensor in tensors if tensor.nbytes)
        for start, nbytes in sorted(each for each in begins if 0 <= each[0] < len(self.memory)):
            self.discard(emptied, start)
            emptied = max(emptied, start + nbytes)
        self.discard(emptied, len(self.memory))


def _extent(tensor: torch.Tensor) -> int:
    """Bytes from the first element of a tensor to the end of its last one; it has elements."""
    last = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return (last + 1) * tensor.element_size()

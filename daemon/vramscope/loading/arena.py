"""One private piece of memory for all weights of a model, as tensors."""

import ctypes
from collections.abc import Iterable

import torch

from vramscope.loading.dtypes import TORCH_DTYPES
from vramscope.loading.room import Room
from vramscope.loading.spans import Place

_libc = ctypes.CDLL(None)


def trim_heap() -> None:
    """Give free memory of the C library's heap back: glibc keeps blocks of up to 32 MiB that were used once."""
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


class Arena:
    """`memory` is a room as a uint8 tensor, given back to the system as a whole when the last view dies."""

    def __init__(self, room: Room) -> None:
        self._room = room
        self.memory = torch.frombuffer(room.memory, dtype=torch.uint8) if room.memory else torch.empty(0).byte()

    @classmethod
    def of(cls, nbytes: int) -> "Arena":
        """An arena of so many zeros. Raises MemoryError."""
        return cls(Room(nbytes))

    def view(self, place: Place) -> torch.Tensor:
        """The tensor that lies at a place."""
        return self.memory[place.offset : place.end].view(TORCH_DTYPES[place.dtype]).view(place.entry.shape)

    def discard(self, start: int, end: int) -> int:
        """As Room.discard."""
        return self._room.discard(start, end)

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

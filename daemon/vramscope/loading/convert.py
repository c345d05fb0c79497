"""Elements of one dtype to another by torch, chunk by chunk."""

import time
from collections.abc import Callable

import torch

from vramscope.loading.dtypes import TORCH_DTYPES
from vramscope.loading.spans import Span

# Source, float32 in between and target of a chunk are 1 MiB together, and stay in the second-level cache.
CHUNK_ELEMENTS = 1 << 17
LARGEST_ITEM_BYTES = 16


class Converter:
    """What one thread converts with. It keeps torch to one thread."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._buffer = bytearray(CHUNK_ELEMENTS * LARGEST_ITEM_BYTES)
        self._scratch = torch.empty(CHUNK_ELEMENTS, dtype=torch.float32)

    def convert(self, piece: Span, target: memoryview, source: memoryview) -> None:
        """Write a piece as it is stored into `target` as it is wanted."""
        for into, chunk in zip(_chunks(target, piece.wanted), _chunks(source, piece.stored), strict=True):
            self._convert(into, chunk)

    def read(self, piece: Span, target: memoryview, read: Callable[[memoryview, int], None]) -> tuple[float, float]:
        """As `convert`, of what `read` puts into memory from an offset of the file; returns the seconds of each."""
        source = torch.frombuffer(self._buffer, dtype=TORCH_DTYPES[piece.stored], count=CHUNK_ELEMENTS)
        memory, offset = memoryview(self._buffer), piece.file_offset
        reading = converting = 0.0
        began = time.perf_counter()
        for into in _chunks(target, piece.wanted):
            nbytes = len(into) * source.itemsize
            read(memory[:nbytes], offset)
            arrived = time.perf_counter()
            self._convert(into, source if len(into) == CHUNK_ELEMENTS else source[: len(into)])
            done = time.perf_counter()
            reading, converting = reading + arrived - began, converting + done - arrived
            offset, began = offset + nbytes, done
        return reading, converting

    def _convert(self, target: torch.Tensor, source: torch.Tensor) -> None:
        """As target.copy_(source).

        Between the two 16-bit formats torch has no vectorised copy; two copies through float32 give the same bits in a
        third of the time, or less, for every one of the 65,536 patterns that is a number. A NaN stays one, of other
        bits.
        """
        if {source.dtype, target.dtype} == {torch.bfloat16, torch.float16}:
            middle = self._scratch if len(source) == CHUNK_ELEMENTS else self._scratch[: len(source)]
            middle.copy_(source)
            target.copy_(middle)
        else:
            target.copy_(source)


def _chunks(memory: memoryview, dtype: str) -> tuple[torch.Tensor, ...]:
    return torch.frombuffer(memory, dtype=TORCH_DTYPES[dtype]).split(CHUNK_ELEMENTS)  # type: ignore[no-untyped-call, no-any-return]

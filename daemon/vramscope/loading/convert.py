"""Elements of one dtype to another by torch, chunk by chunk."""

import torch

from vramscope.loading.dtypes import TORCH_DTYPES

# Source, float32 in between and target of a chunk are 1 MiB together, and stay in the second-level cache.
CHUNK_ELEMENTS = 1 << 17


class Converter:
    """What one thread converts with. It keeps torch to one thread."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._scratch = torch.empty(CHUNK_ELEMENTS, dtype=torch.float32)

    def convert(self, target: memoryview, wanted: str, source: memoryview, stored: str) -> None:
        """Write `source` into `target` with its dtype, as torch's copy_ does.

        Between the two 16-bit formats torch has no vectorised copy; two copies through float32 give the same bits in a
        third of the time, or less, for every one of the 65,536 patterns that is a number. A NaN stays one, of other
        bits.
        """
        into = torch.frombuffer(target, dtype=TORCH_DTYPES[wanted])
        elements = torch.frombuffer(source, dtype=TORCH_DTYPES[stored])
        for to, chunk in zip(_chunks(into), _chunks(elements), strict=True):
            if {stored, wanted} == {"BF16", "F16"}:
                middle = self._scratch[: len(chunk)]
                middle.copy_(chunk)
                to.copy_(middle)
            else:
                to.copy_(chunk)


def _chunks(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tensor.split(CHUNK_ELEMENTS)  # type: ignore[no-untyped-call, no-any-return]

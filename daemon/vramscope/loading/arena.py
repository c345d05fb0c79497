"""One private piece of memory for all weights of a model, given back to the system as a whole when the last view dies.

Touching fresh 4 KiB pages costs more than reading the file from the page cache; 2 MiB pages cost a seventh of that.
"""

import contextlib
import mmap

import torch

HUGE_PAGE_BYTES = 2 << 20


def allocate_arena(nbytes: int) -> torch.Tensor:
    """Return a uint8 tensor of `nbytes` zeros in anonymous memory, aligned to 2 MiB where the system has huge pages.

    Python maps shared memory unless told otherwise, and shared memory gets no transparent huge pages.
    """
    mapping = mmap.mmap(-1, max(nbytes, 1) + HUGE_PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # Kernels without transparent huge pages refuse: plain pages are slower, not wrong.
        with contextlib.suppress(OSError):
            mapping.madvise(mmap.MADV_HUGEPAGE)
    whole = torch.frombuffer(mapping, dtype=torch.uint8)
    start = -whole.data_ptr() % HUGE_PAGE_BYTES
    return whole[start : start + nbytes]

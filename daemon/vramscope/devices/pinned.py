"""Page-locked host memory: a GPU copies to and from it by itself, while the processor does something else.

torch's own pinned memory comes from a cache that keeps what it once had (CachingHostAllocator). This memory is mapped
for one transfer and goes back to the system at its end.
"""

import contextlib
import mmap
import threading
from collections.abc import Callable

import torch

# cudaHostRegisterPortable: every context of the process may use the memory, as torch registers its own.
PORTABLE = 1


class PinnedMemory:
    """`memory` is a uint8 tensor that CUDA has registered; `close` gives it back, when no copy uses it any more."""

    def __init__(self, mapping: mmap.mmap, device: torch.device) -> None:
        self.memory = torch.frombuffer(mapping, dtype=torch.uint8)
        self._address = self.memory.data_ptr()
        self._device = device

    def register(self) -> bool:
        """Whether CUDA takes it. A container, a limit on locked memory, or WSL may refuse."""
        cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        return _succeeds(lambda: cudart.cudaHostRegister(self._address, len(self.memory), PORTABLE), self._device)

    def close(self) -> None:
        """Give the memory back. A broken context refuses; then the driver lets go of it with the process."""
        cudart = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        _succeeds(lambda: cudart.cudaHostUnregister(self._address), self._device)
        self.memory = torch.empty(0, dtype=torch.uint8)


def pin(nbytes: int, device: torch.device) -> PinnedMemory | None:
    """Map and register memory; None where it cannot be had."""
    try:
        mapping = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        # After a fork, copy-on-write could move this process to other pages than the device's.
        mapping.madvise(mmap.MADV_DONTFORK)
    except (OSError, ValueError, OverflowError):
        return None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):
            mapping.madvise(mmap.MADV_HUGEPAGE)
    pinned = PinnedMemory(mapping, device)
    return pinned if pinned.register() else None


def _succeeds(function: Callable[[], object], device: torch.device) -> bool:
    """Whether a function of the CUDA runtime returns success.

    It is called in a thread of its own: the runtime remembers the last error of each thread, and torch would find it
    after its next kernel (cudaGetLastError) and take it for that kernel's.
    """
    codes: list[int] = []

    def run() -> None:
        # torch raises where the context is broken already; whatever is copied next says so.
        with contextlib.suppress(RuntimeError), torch.cuda.device(device):
            codes.append(int(function()))  # type: ignore[call-overload]

    thread = threading.Thread(target=run, name="cuda-runtime")
    thread.start()
    thread.join()
    return codes == [0]

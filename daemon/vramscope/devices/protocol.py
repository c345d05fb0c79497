"""What every device can do. `cuda` and `simulated` pass one contract suite."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

import torch

from vramscope.memory.snapshot import DeviceFacts, DeviceSnapshot


@dataclass(frozen=True, eq=False)
class DeviceTensor:
    """A tensor that lives on a device. `pointer` is the simulated allocator's block, None where torch keeps it."""

    tensor: torch.Tensor
    pointer: int | None = None


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of a tensor without gaps, as a uint8 tensor that shares it."""
    offset = tensor.storage_offset() * tensor.element_size()
    empty = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return empty.set_(tensor.untyped_storage(), offset, (tensor.nbytes,), (1,))


class Mark(Protocol):
    """A moment in the order of a transfer's copies."""

    def wait(self) -> None:
        """Wait until every copy is done that was started before."""


class Transfer(Protocol):
    """Copies to and from a device that may still run when a call returns; they are done in the order of their start.

    They pass through `memory`, a uint8 tensor in host memory: what is sent lies in it, what is fetched goes to it, and
    neither is touched before a mark that was made afterwards, or `finish`, was waited for. Raises what `upload` raises.
    """

    @property
    def memory(self) -> torch.Tensor: ...

    def room(self, like: torch.Tensor) -> DeviceTensor:
        """Memory of the device for a tensor like this one, as `upload` would take it. Nothing is copied.

        The tensor has no gaps; its strides are those of `like` where that has none either.
        """

    def send(self, source: torch.Tensor, held: DeviceTensor, start: int) -> None:
        """Start copying bytes of `memory` to those from `start` on of a device's tensor."""

    def fetch(self, held: DeviceTensor, start: int, into: torch.Tensor) -> None:
        """Start copying the bytes from `start` on of a device's tensor to bytes of `memory`."""

    def mark(self) -> Mark: ...

    def finish(self) -> None:
        """Wait until all copies are done."""


class Device(Protocol):
    """One device, by its torch name (`cuda:0`).

    Nothing here creates a CUDA context but `open`, `upload` and `copying`: asking for memory of a device that was never
    used answers zeros.
    """

    @property
    def name(self) -> str: ...
    @property
    def backend(self) -> str: ...
    @property
    def is_open(self) -> bool: ...

    @property
    def shares_host_memory(self) -> bool:
        """Whether what `upload` returns lives in the memory of the tensor that it was given."""

    def open(self) -> None:
        """Create the context (on CUDA some 100 to 500 MiB that no allocator counts)."""

    def upload(self, tensor: torch.Tensor) -> DeviceTensor:
        """Copy a tensor to the device. Raises OutOfMemoryError with nothing taken, StickyDeviceError if CUDA broke."""

    def download(self, held: DeviceTensor, into: torch.Tensor) -> None:
        """Fill a tensor in host memory of the same shape and dtype; the device keeps its own until `release`.

        Where the device shares host memory, `into` is its own.
        """

    def release(self, held: DeviceTensor) -> None:
        """Give a tensor's block back to the allocator. The caller drops its own references before."""

    def copying(self, memory_bytes: int) -> AbstractContextManager[Transfer | None]:
        """A transfer through so much pinned memory, which is given back at the end, when nothing is in flight any more.

        None where there is nothing to copy, or where no memory can be pinned: `upload` and `download` do the work.
        Whatever ends it early, only then what was taken may be released.
        """

    def synchronize(self) -> None:
        """Wait until all copies are done."""

    def empty_cache(self) -> None:
        """Give the allocator's unused segments back to the driver (torch.cuda.empty_cache)."""

    def reset_peak(self) -> None:
        """Let the peaks begin anew from the live amount."""

    def snapshot(self) -> DeviceSnapshot:
        """What the allocator holds now."""

    def live(self) -> dict[int, int] | None:
        """The tensor storages that the allocator has given out: address to the bytes that were asked for.

        None for an allocator that does not tell them apart.
        """

    def address(self, held: DeviceTensor) -> int | None:
        """Where a tensor of this device lies, as `live` names it; None for a tensor without elements."""

    def facts(self) -> DeviceFacts:
        """What does not change about the device."""

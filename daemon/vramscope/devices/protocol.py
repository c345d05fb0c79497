"""What every device can do. `cuda` and `simulated` pass one contract suite."""

from dataclasses import dataclass
from typing import Protocol

import torch

from vramscope.memory.snapshot import DeviceFacts, DeviceSnapshot


@dataclass(frozen=True, eq=False)
class DeviceTensor:
    """A tensor that lives on a device. `pointer` is the simulated allocator's block, None where torch keeps it."""

    tensor: torch.Tensor
    pointer: int | None = None


class Device(Protocol):
    """One device, by its torch name (`cuda:0`).

    Nothing here creates a CUDA context but `open` and `upload`: asking for memory of a device that was never used
    answers zeros.
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

    def download(self, held: DeviceTensor) -> torch.Tensor:
        """Copy a tensor of this device to host memory; the device keeps it until `release`."""

    def release(self, held: DeviceTensor) -> None:
        """Give a tensor's block back to the allocator. The caller drops its own references before."""

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

"""A device that copies, as a card does: over the simulated device's allocator, its tensors are in shared memory.

What it holds is no part of the process's anonymous memory, so that this shows what is left on the host.
"""

import mmap
import os
from contextlib import AbstractContextManager

import torch

from vramscope.devices.protocol import DeviceTensor
from vramscope.devices.simulated import SimulatedCard, SimulatedDevice
from vramscope.memory.snapshot import DeviceFacts, DeviceSnapshot


class MappedDevice:
    """A simulated device whose tensors are copies."""

    shares_host_memory = False

    def __init__(self, name: str, simulated: SimulatedCard) -> None:
        self._allocator = SimulatedDevice(name, simulated)
        self.name, self.backend = name, self._allocator.backend

    @property
    def is_open(self) -> bool:
        return self._allocator.is_open

    def open(self) -> None:
        self._allocator.open()

    def upload(self, tensor: torch.Tensor) -> DeviceTensor:
        held = self._allocator.upload(tensor)
        return DeviceTensor(shared_like(tensor).copy_(tensor), held.pointer)

    def download(self, held: DeviceTensor, into: torch.Tensor) -> None:
        into.copy_(held.tensor)

    def release(self, held: DeviceTensor) -> None:
        self._allocator.release(held)

    def copying(self, memory_bytes: int) -> AbstractContextManager[None]:
        return self._allocator.copying(memory_bytes)

    def synchronize(self) -> None:
        self._allocator.synchronize()

    def empty_cache(self) -> None:
        self._allocator.empty_cache()

    def reset_peak(self) -> None:
        self._allocator.reset_peak()

    def snapshot(self) -> DeviceSnapshot:
        return self._allocator.snapshot()

    def live(self) -> dict[int, int]:
        return self._allocator.live()

    def address(self, held: DeviceTensor) -> int | None:
        return self._allocator.address(held)

    def facts(self) -> DeviceFacts:
        return self._allocator.facts()


def shared_like(tensor: torch.Tensor) -> torch.Tensor:
    """Zeros in shared memory, with the strides that a device would choose for this tensor."""
    wanted = torch.empty_like(tensor, device="meta")
    nbytes = tensor.numel() * tensor.element_size()
    if not nbytes:
        return torch.empty_like(tensor)
    descriptor = os.memfd_create("device")
    os.ftruncate(descriptor, nbytes)
    memory = mmap.mmap(descriptor, nbytes)
    os.close(descriptor)
    return torch.frombuffer(memory, dtype=tensor.dtype).as_strided(wanted.shape, wanted.stride())

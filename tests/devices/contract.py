"""What the contract suite needs of each kind of device, and the kinds that this process can have."""

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from tests.devices.mapped import MappedDevice

from vramscope.devices.cuda import CudaDevice
from vramscope.devices.protocol import Device, DeviceTensor
from vramscope.devices.simulated import SimulatedCard, SimulatedDevice

MIB = 1 << 20
CONTEXT_BYTES = 100 * MIB
# No device has that much; a tensor of that size takes one byte on the host, because it repeats one element.
TOO_MUCH_BYTES = 1 << 50


class Rig(Protocol):
    """Devices of one kind, as they are in a process that has used none of them."""

    devices: Sequence[Device]

    def has_context(self, device: Device) -> bool:
        """Whether this process has a context on the device."""

    def close(self) -> None:
        """Leave nothing behind for the next test."""


class SimulatedRig:
    """Two cards of 1 GiB that exist only in the allocator's model."""

    def __init__(self, kind: Callable[[str, SimulatedCard], Device]) -> None:
        card = SimulatedCard(capacity_bytes=1024 * MIB, context_bytes=CONTEXT_BYTES)
        self.devices: Sequence[Device] = [kind(f"cuda:{ordinal}", card) for ordinal in range(2)]

    def has_context(self, device: Device) -> bool:
        driver = device.snapshot().driver
        return driver is not None and bool(driver.process_used_bytes)

    def close(self) -> None:
        pass


class CudaRig:
    """Every CUDA device that torch sees, on a real card or on the stub driver. Contexts outlive a test."""

    def __init__(self) -> None:
        gc.freeze()  # what is there by now stays: `close` need not look at it, which takes longer than the test
        self.devices: Sequence[Device] = [CudaDevice(ordinal) for ordinal in range(torch.cuda.device_count())]

    def has_context(self, device: Device) -> bool:
        return bool(torch._C._cuda_hasPrimaryContext(int(device.name.removeprefix("cuda:"))))

    def close(self) -> None:
        gc.collect()
        torch.cuda.empty_cache()


RIGS: Mapping[str, Callable[[], Rig]] = {
    "simulated": partial(SimulatedRig, SimulatedDevice),
    "mapped": partial(SimulatedRig, MappedDevice),
    **({"cuda": CudaRig} if torch.cuda.is_available() else {}),
}


@dataclass
class Holder:
    """Uploads to a device and owns what comes back, as a model does."""

    device: Device

    def __post_init__(self) -> None:
        self._held: list[DeviceTensor] = []

    def take(self, nbytes: int) -> None:
        """Hold a tensor of `nbytes` on the device."""
        self._held.append(self.device.upload(torch.empty(nbytes, dtype=torch.uint8)))

    def drop(self) -> None:
        """Give everything back to the allocator."""
        while self._held:
            self.device.release(self._held.pop())

    @property
    def addresses(self) -> list[int | None]:
        """Where the tensors lie that are held, in the order of their taking."""
        return [self.device.address(held) for held in self._held]

    @property
    def allocated_bytes(self) -> int:
        return self.device.snapshot().allocator.allocated_bytes

    @property
    def reserved_bytes(self) -> int:
        return self.device.snapshot().allocator.reserved_bytes


def too_much() -> torch.Tensor:
    """A tensor that fits on no device."""
    return torch.zeros(1, dtype=torch.uint8).expand(TOO_MUCH_BYTES)


def same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors have the same dtype, shape and bits; NaN compares by its bits, too."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    first, second = (tensor.contiguous().view(-1) for tensor in (left, right))
    return not first.numel() or torch.equal(first.view(torch.uint8), second.view(torch.uint8))

"""A device without a GPU: tensors stay in host memory, and the model of torch's allocator runs over them.

Every number that it reports is what the same sequence would give on a card of that capacity; nothing is copied, and
copies only take the time that the set bandwidth would need.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch

from vramscope.devices.protocol import DeviceTensor
from vramscope.errors import OutOfMemoryError
from vramscope.memory.allocator import AllocatorSettings, CachingAllocator, PhysicalMemory
from vramscope.memory.snapshot import DeviceFacts, DeviceSnapshot, DriverMemory
from vramscope.units import format_bytes

BACKEND = "simulated"
# Sleeping for less than this costs more than it paces.
SHORTEST_PAUSE_SECONDS = 0.005


@dataclass(frozen=True, kw_only=True)
class SimulatedCard:
    """What a simulated device is made of: bytes, and bytes per second for its copies (0: copies take no time)."""

    capacity_bytes: int
    context_bytes: int
    other_bytes: int = 0
    bandwidth_bytes_per_second: int = 0
    allocator: AllocatorSettings = field(default_factory=AllocatorSettings)


class SimulatedDevice:
    """A card that exists only in the allocator's model (memory/allocator.py)."""

    def __init__(self, name: str, card: SimulatedCard, sleep: Callable[[float], None] = time.sleep) -> None:
        self.name = name
        self.backend = BACKEND
        self.shares_host_memory = True
        self.is_open = False
        self._card = card
        self._memory = PhysicalMemory(total_bytes=card.capacity_bytes, other_bytes=card.other_bytes)
        self._allocator = CachingAllocator(self._memory, card.allocator)
        self._sleep = sleep
        self._owed_seconds = 0.0

    def open(self) -> None:
        if self.is_open:
            return
        if self._card.context_bytes > self._memory.free_bytes:
            raise OutOfMemoryError(
                f"{self.name} has {self._memory.free_bytes} bytes free and a context needs {self._card.context_bytes}",
                hint="free memory that other processes hold, or simulate a larger device",
            )
        self._memory.context_bytes = self._card.context_bytes
        self.is_open = True

    def upload(self, tensor: torch.Tensor) -> DeviceTensor:
        self.open()
        pointer = self._allocator.allocate(tensor.nbytes)
        self._pace(tensor.nbytes)
        return DeviceTensor(tensor, pointer)

    def download(self, held: DeviceTensor, into: torch.Tensor) -> None:
        self._pace(held.tensor.nbytes)
        if into is not held.tensor:
            into.copy_(held.tensor)

    def release(self, held: DeviceTensor) -> None:
        if held.pointer is not None:
            self._allocator.free(held.pointer)

    def copying(self, memory_bytes: int) -> AbstractContextManager[None]:  # noqa: ARG002 - there is nothing to copy
        self.open()
        return nullcontext()

    def synchronize(self) -> None:
        self._pause()

    def empty_cache(self) -> None:
        self._allocator.empty_cache()

    def reset_peak(self) -> None:
        self._allocator.reset_peak()

    def snapshot(self) -> DeviceSnapshot:
        allocator = self._allocator.memory()
        context = self._memory.context_bytes
        used = self._memory.total_bytes - self._memory.free_bytes
        driver = DriverMemory(
            total_bytes=self._memory.total_bytes,
            used_bytes=used,
            free_bytes=self._memory.free_bytes,
            reserved_bytes=0,
            process_used_bytes=allocator.reserved_bytes + context,
        )
        return DeviceSnapshot(
            device=self.name, backend=BACKEND, allocator=allocator, driver=driver, is_open=self.is_open
        )

    def live(self) -> dict[int, int]:
        return self._allocator.live()

    def address(self, held: DeviceTensor) -> int | None:
        return held.pointer

    def facts(self) -> DeviceFacts:
        return DeviceFacts(
            device=self.name,
            backend=BACKEND,
            name=f"simulated {format_bytes(self._memory.total_bytes)}",
            total_bytes=self._memory.total_bytes,
        )

    def _pace(self, nbytes: int) -> None:
        if self._card.bandwidth_bytes_per_second:
            self._owed_seconds += nbytes / self._card.bandwidth_bytes_per_second
            if self._owed_seconds >= SHORTEST_PAUSE_SECONDS:
                self._pause()

    def _pause(self) -> None:
        owed, self._owed_seconds = self._owed_seconds, 0.0
        if owed > 0:
            self._sleep(owed)

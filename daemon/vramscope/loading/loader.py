"""From a checkpoint to a model in memory: on the host, or straight on a device without a copy of it on the host."""

from dataclasses import dataclass, field

import torch
from torch import nn

from vramscope.anatomy.source import Checkpoint
from vramscope.devices.protocol import Device, DeviceTensor
from vramscope.loading.arena import Arena
from vramscope.loading.assemble import Architecture, assemble, find_architecture
from vramscope.loading.monitor import Monitor
from vramscope.loading.order import Slot, slots
from vramscope.loading.skeleton import Skeleton
from vramscope.loading.weights import StagedWeights


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A model in memory. `held` has the device's tensors in the order of the slots; empty on the host."""

    architecture: Architecture
    module: nn.Module
    unexpected: tuple[str, ...]
    held: list[DeviceTensor] = field(default_factory=list)


def load(checkpoint: Checkpoint, dtype: torch.dtype, monitor: Monitor, device: Device | None = None) -> Loaded:
    """Load a model to host memory, or, where it is plain (Skeleton.is_plain), straight to `device`.

    Raises SourceError, StepError, OutOfMemoryError, StepCancelledError, MemoryError; nothing is kept then.
    """
    with monitor.phase("import"):  # of the model's class, which may take seconds once per process
        architecture = find_architecture(checkpoint.directory, checkpoint.config)
        skeleton = Skeleton(architecture, dtype)
    staged = StagedWeights(checkpoint.tensors, skeleton.wanted)
    if device is not None and skeleton.is_plain(checkpoint.headers):
        # The module is built over the arena before anything is read, which touches none of its pages.
        with monitor.phase("build"):
            module, unexpected = assemble(architecture, staged.views(), dtype)
        stream = _Stream(slots(module), staged, device)
        if stream.covers(skeleton):
            held = stream.run(monitor)
            return Loaded(architecture=architecture, module=module, unexpected=unexpected, held=held)
        del module, stream  # something was copied out of memory that nobody had filled
    monitor.enter_phase("read")
    staged.fill(monitor)
    with monitor.phase("build"):
        module, unexpected = assemble(architecture, staged.views(), dtype)
    return Loaded(architecture=architecture, module=module, unexpected=unexpected)


class _Stream:
    """Takes tensors out of the arena as they become ready, and puts them on the device."""

    def __init__(self, places: tuple[Slot, ...], staged: StagedWeights, device: Device) -> None:
        self._device = device
        self._slots = places
        self._staged = staged
        self._arena: Arena = staged.arena
        self._arrived: dict[int, DeviceTensor] = {}
        base = staged.arena.memory.data_ptr()
        at = {base + place.offset: place.end for place in staged.layout.places.values() if place.entry.elements}
        found = ((slot.tensor.data_ptr(), index) for index, slot in enumerate(places))
        # In file order, which is the arena's: where each tensor ends, and whose it is.
        self._waiting = [(at[pointer], index) for pointer, index in sorted(found) if pointer in at]
        self._next = 0
        self._emptied = 0

    def covers(self, skeleton: Skeleton) -> bool:
        """Whether every stored tensor that the model has is in the module as it lies in the arena."""
        ends = {end for end, _ in self._waiting}
        return all(
            place.end in ends
            for name, place in self._staged.layout.places.items()
            if place.entry.elements and skeleton.dtype_of(name) is not None
        )

    def run(self, monitor: Monitor) -> list[DeviceTensor]:
        """Put each tensor on the device as soon as it is read, in file order, then what no file holds.

        Returns what the device has, in the order of the slots.
        """
        try:
            if not self._device.is_open:
                with monitor.phase("context"):
                    self._device.open()
            monitor.enter_phase("read")
            self._staged.fill(monitor, take=self.take)
            return self.finish(monitor)
        except BaseException:
            self.give_back()
            raise

    def take(self, ready: int) -> None:
        """Upload every tensor that lies below this offset, and let the arena's pages go where the device has a copy."""
        end = self._emptied
        while self._next < len(self._waiting) and self._waiting[self._next][0] <= ready:
            end, index = self._waiting[self._next]
            self._upload(index)
            self._next += 1
        if not self._device.shares_host_memory:
            self._emptied = self._arena.discard(self._emptied, end)

    def finish(self, monitor: Monitor) -> list[DeviceTensor]:
        """Upload what no file holds, wait for all copies, and let the module use them."""
        for index in range(len(self._slots)):
            if index not in self._arrived:
                self._upload(index)
        with monitor.phase("synchronize"):
            self._device.synchronize()
        for index, slot in enumerate(self._slots):
            slot.assign(self._arrived[index].tensor)
        return [self._arrived[index] for index in range(len(self._slots))]

    def give_back(self) -> None:
        for held in self._arrived.values():
            self._device.release(held)
        self._arrived.clear()

    def _upload(self, index: int) -> None:
        self._arrived[index] = self._device.upload(self._slots[index].tensor)

"""From a checkpoint to a model in memory: on the host, or straight on a device without a copy of it on the host."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from vramscope.anatomy.parts import Part, chosen
from vramscope.anatomy.source import Checkpoint
from vramscope.devices.protocol import Device, DeviceTensor
from vramscope.events import Fact
from vramscope.loading.arena import Arena, trim_heap
from vramscope.loading.assemble import Architecture, assemble, find_architecture
from vramscope.loading.attach import attach
from vramscope.loading.monitor import Monitor
from vramscope.loading.order import Slot, slots
from vramscope.loading.skeleton import Skeleton
from vramscope.loading.weights import Reading, StagedWeights


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A model in memory. `held` has the device's tensors by the index of their slot; empty on the host.

    `attached` says whether it was made without transformers' own loader; `arena` is the memory that it was read into.
    """

    architecture: Architecture
    module: nn.Module
    unexpected: tuple[str, ...]
    attached: bool
    reading: Reading
    arena: Arena
    held: dict[int, DeviceTensor] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, Fact]:
        """How it came about, for the event of the step."""
        return {"assembled": "attached" if self.attached else "by_transformers", "reading": self.reading.way}


def load(
    checkpoint: Checkpoint,
    dtype: torch.dtype,
    monitor: Monitor,
    device: Device | None = None,
    part: Part | None = None,
) -> Loaded:
    """Load a model to host memory, or, where it is plain (Skeleton.is_plain), straight to `device`.

    With a `part` only that goes to the device, and the rest to host memory. Raises SourceError, StepError (PartError
    before anything is read), OutOfMemoryError, StepCancelledError, MemoryError; nothing is kept then.
    """
    with monitor.phase("import"):  # of the model's class, which may take seconds once per process
        architecture = find_architecture(checkpoint.directory, checkpoint.config)
        skeleton = Skeleton(architecture, dtype)
    going = chosen(part, [slot.name for slot in skeleton.slots])
    builder = _Builder(architecture, skeleton, checkpoint)
    staged = StagedWeights(checkpoint.tensors, skeleton.wanted)
    if device is not None and builder.is_plain:
        # The module is built over the arena before anything is read, which touches none of its pages.
        with monitor.phase("build"):
            built = builder.build(staged)
        stream = _Stream(slots(built.module), staged, device, going)
        if stream.covers(skeleton):
            held, reading = stream.run(monitor)
            return built.loaded(architecture, reading, staged.arena, held)
        del built, stream  # something was copied out of memory that nobody had filled
        builder.is_plain = False
    monitor.enter_phase("read")
    reading = staged.fill(monitor)
    with monitor.phase("build"):
        return builder.build(staged).loaded(architecture, reading, staged.arena)


@dataclass(frozen=True, kw_only=True)
class _Built:
    """A model over an arena."""

    module: nn.Module
    unexpected: tuple[str, ...] = ()
    attached: bool = False

    def loaded(
        self, architecture: Architecture, reading: Reading, arena: Arena, held: Mapping[int, DeviceTensor] | None = None
    ) -> Loaded:
        return Loaded(
            architecture=architecture,
            module=self.module,
            unexpected=self.unexpected,
            attached=self.attached,
            reading=reading,
            arena=arena,
            held=dict(held or {}),
        )


class _Builder:
    """Makes the module: of the skeleton where the model is plain, else by transformers' loader."""

    def __init__(self, architecture: Architecture, skeleton: Skeleton, checkpoint: Checkpoint) -> None:
        self.is_plain = skeleton.is_plain(checkpoint.headers)
        self._architecture = architecture
        self._skeleton = skeleton

    def build(self, staged: StagedWeights) -> _Built:
        views = staged.views()
        if self.is_plain and (module := attach(self._skeleton, views)) is not None:
            return _Built(module=module, attached=True)
        module, unexpected = assemble(self._architecture, views, self._skeleton.dtype)
        # What was fused, or is of no use, must not lie in memory beside the model.
        staged.arena.keep_only(slot.tensor for slot in slots(module))
        trim_heap()
        return _Built(module=module, unexpected=unexpected)


class _Stream:
    """Takes tensors out of the arena as they become ready, and puts those at the indices `going` on the device."""

    def __init__(self, places: tuple[Slot, ...], staged: StagedWeights, device: Device, going: Collection[int]) -> None:
        self._device = device
        self._slots = places
        self._going = frozenset(going)
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

    def run(self, monitor: Monitor) -> tuple[dict[int, DeviceTensor], Reading]:
        """Put each tensor that goes on the device as soon as it is read, in file order, then what no file holds.

        Returns what the device has, by the index of the slot, and how it was read.
        """
        try:
            if not self._device.is_open:
                with monitor.phase("context"):
                    self._device.open()
            monitor.enter_phase("read")
            reading = self._staged.fill(monitor, take=self.take)
            return self.finish(monitor), reading
        except BaseException:
            self.give_back()
            raise

    def take(self, ready: int) -> None:
        """Upload what lies below this offset and goes, and let the arena's pages go where the device has a copy."""
        end = self._emptied
        while self._next < len(self._waiting) and self._waiting[self._next][0] <= ready:
            end, index = self._waiting[self._next]
            if index in self._going:
                self._upload(index)
            else:
                self._discard(end - self._slots[index].tensor.nbytes)
                self._emptied = end  # what stays is passed over
            self._next += 1
        self._discard(end)

    def _discard(self, end: int) -> None:
        if not self._device.shares_host_memory:
            self._emptied = self._arena.discard(self._emptied, end)

    def finish(self, monitor: Monitor) -> dict[int, DeviceTensor]:
        """Upload what no file holds, wait for all copies, and let the module use them."""
        for index in sorted(self._going - self._arrived.keys()):
            self._upload(index)
        with monitor.phase("synchronize"):
            self._device.synchronize()
        for index, held in self._arrived.items():
            self._slots[index].assign(held.tensor)
        return self._arrived

    def give_back(self) -> None:
        for held in self._arrived.values():
            self._device.release(held)
        self._arrived.clear()

    def _upload(self, index: int) -> None:
        self._arrived[index] = self._device.upload(self._slots[index].tensor)

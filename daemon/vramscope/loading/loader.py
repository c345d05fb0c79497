"""From a checkpoint to a model in memory: on the host, or straight on a device without a copy of it on the host."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import nn

from vramscope.anatomy.parts import Part, chosen
from vramscope.anatomy.source import Checkpoint
from vramscope.devices.protocol import Device, DeviceTensor
from vramscope.events import Fact
from vramscope.loading.arena import Arena, trim_heap
from vramscope.loading.assemble import Architecture, assemble, find_architecture, paused_collection
from vramscope.loading.attach import attach
from vramscope.loading.dtypes import STORED_DTYPES, refuse_unknown
from vramscope.loading.monitor import Monitor
from vramscope.loading.order import slots
from vramscope.loading.skeleton import Skeleton
from vramscope.loading.stream import Stream
from vramscope.loading.weights import Reading, StagedWeights


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A model in memory. `held` has the device's tensors by the index of their slot; empty on the host.

    `attached` says whether it was made without transformers' own loader, `staging` how it was copied to the device
    (loading/staging.py), None on the host; `arena` is the memory that it was read into.
    """

    architecture: Architecture
    module: nn.Module
    unexpected: tuple[str, ...]
    attached: bool
    reading: Reading
    arena: Arena
    held: dict[int, DeviceTensor] = field(default_factory=dict)
    staging: str | None = None

    @property
    def facts(self) -> dict[str, Fact]:
        """How it came about, for the event of the step."""
        return {
            "assembled": "attached" if self.attached else "by_transformers",
            "reading": self.reading.way,
            **({"staging": self.staging} if self.staging else {}),
        }


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
    with monitor.phase("import"), paused_collection():  # of the model's class, which may take seconds once per process
        architecture = find_architecture(checkpoint.directory, checkpoint.config)
        skeleton = Skeleton(architecture, dtype)
    going = chosen(part, [slot.name for slot in skeleton.slots])
    builder = _Builder(architecture, skeleton, checkpoint)
    refuse_unknown(checkpoint.tensors)
    staged = StagedWeights(checkpoint.tensors, lambda entry: STORED_DTYPES[skeleton.wanted(entry)])
    if device is not None and builder.is_plain:
        # The module is built over the arena before anything is read, which touches none of its pages.
        with monitor.phase("build"):
            built = builder.build(staged)
        stream = Stream(slots(built.module), staged, device, going)
        if stream.covers(skeleton):
            held, reading = stream.run(monitor)
            return built.loaded(architecture, reading, staged.arena, held, stream.staging)
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
        self,
        architecture: Architecture,
        reading: Reading,
        arena: Arena,
        held: Mapping[int, DeviceTensor] | None = None,
        staging: str | None = None,
    ) -> Loaded:
        return Loaded(
            architecture=architecture,
            module=self.module,
            unexpected=self.unexpected,
            attached=self.attached,
            reading=reading,
            arena=arena,
            held=dict(held or {}),
            staging=staging,
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

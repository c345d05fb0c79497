"""Loads a model from its files into memory.

    - load: qwen
    - load: {model: qwen, to: cuda:0}
    - load: {model: qwen, verify: true}
    - load: {model: qwen, to: cuda:0, layers: 0-11, components: [embedding]}
    - load: {model: qwen, force: true}

The model's files are read and become the parameters of a PyTorch module, in the plan's dtype. `to` is where they end:
`cpu` (system RAM, the default), or a device, to which each tensor then streams straight from the file, through at most
64 MiB of pinned memory (the fact `staging` says whether there was some, as for `move`); where weights are fused or
otherwise computed while they are loaded, the model is loaded to RAM and moved.

With `layers` or `components`, which mean what they mean for `move`, only what they name goes to the device, and the
rest of the model stays in system RAM.

What the page cache holds is read from there, and the rest past it, where the file system allows that. The step's facts
say which it was (`reading`, `page_cache_share`), and whether transformers' own loader was needed (`assembled`).

With `verify: true` the files are read once before, in a phase of its own, for their SHA-256, which is in the step's
facts (`files_sha256`); a file in the hub's cache with another sum than it is named by fails the step.

A load that needs more RAM than this machine and its container have left is refused before anything is read; with
`force: true` it only warns, and the kernel may end the process. Swap is not counted.
"""

from typing import Self

from pydantic import StrictBool, model_validator

from vramscope.anatomy.parts import Part
from vramscope.plan.fields import DeviceName, ModelName
from vramscope.plan.kinds import Action, Effect, Fields
from vramscope.plan.parts import Components, Layers, part_named
from vramscope.steps._frame import Facts, Kind, StepContext


class LoadFields(Fields):
    """What to load, where to, and whether to check the files' sums, or to try it where the RAM seems too small."""

    model: ModelName
    to: DeviceName = "cpu"
    verify: StrictBool = False
    layers: Layers = None
    components: Components = None
    force: StrictBool = False

    @model_validator(mode="after")
    def _part_has_a_device(self) -> Self:
        if self.part is not None and self.to == "cpu":
            raise ValueError("expected to: cuda:N beside layers or components, which say what goes to that device")
        return self

    @property
    def part(self) -> Part | None:
        return part_named(self.layers, self.components)


def _run(context: StepContext, fields: LoadFields) -> Facts:
    return context.load(fields.model, fields.to, fields.part, force=fields.force, verify=fields.verify)


def _effect(fields: LoadFields, _device: str) -> Effect:
    return Effect(action=Action.LOAD, model=fields.model, to=fields.to, part=fields.part)


STEP = Kind(name="load", fields=LoadFields, run=_run, example="load: qwen", scalar="model", effect=_effect)

"""Moves a loaded model to another device.

    - move: qwen
    - move: {model: qwen, to: cpu}
    - move: {model: qwen, to: cuda:1, layers: 12-23}
    - move: {model: qwen, to: cpu, layers: [0-3, 20], components: [embedding, lm_head]}

`to` is `cpu` or `cuda:N`; without it the plan's `device`. Every parameter and buffer that is not there yet is copied,
in the order of PyTorch's Module.to(), with tied parameters copied once. If one does not fit, all stay where they were.

With `layers` or `components` only a part moves: every tensor that either of them names, as in a device map. `layers`
are numbers and ranges, both ends included; a tensor's layer is the first number in its name, such as the 3 of
`model.layers.3.mlp.up_proj.weight`. `components` are some of embedding, attention, mlp, norm, lm_head, vision, other.
A tied tensor is one tensor with one name, its first: a head that is tied to the embedding moves with the embedding. A
layer or a component that the model does not have fails the step.

Copies between RAM and a device go through at most 32 MiB of pinned memory, which are given back at the end of the step.
Where the system lets no memory be pinned they are slower; the step's fact `staging` says which it was (`pinned`,
`pageable`, or `none`, where nothing is copied through RAM).
"""

from vramscope.anatomy.parts import Part
from vramscope.plan.fields import DeviceName, ModelName
from vramscope.plan.kinds import Action, Effect, Fields
from vramscope.plan.parts import Components, Layers, part_named
from vramscope.steps._frame import Facts, Kind, StepContext


class MoveFields(Fields):
    """What to move, and where to; without layers and components all of the model."""

    model: ModelName
    to: DeviceName | None = None
    layers: Layers = None
    components: Components = None

    @property
    def part(self) -> Part | None:
        return part_named(self.layers, self.components)


def _run(context: StepContext, fields: MoveFields) -> Facts:
    return context.move(fields.model, fields.to or context.default_device, fields.part)


def _effect(fields: MoveFields, device: str) -> Effect:
    return Effect(action=Action.MOVE, model=fields.model, to=fields.to or device, part=fields.part)


STEP = Kind(
    name="move",
    fields=MoveFields,
    run=_run,
    example="move: {model: qwen, to: cuda:0}",
    scalar="model",
    effect=_effect,
)

"""Moves a loaded model to another device.

    - move: qwen
    - move: {model: qwen, to: cpu}

`to` is `cpu` or `cuda:N`; without it the plan's `device`. Every parameter and buffer is copied, in the order of
PyTorch's Module.to(), with tied parameters copied once. A model that does not fit is left where it was.

Copies between RAM and a device go through at most 32 MiB of pinned memory, which are given back at the end of the step.
Where the system lets no memory be pinned they are slower; the step's fact `staging` says which it was (`pinned`,
`pageable`, or `none`, where nothing is copied through RAM).
"""

from vramscope.plan.fields import DeviceName, ModelName
from vramscope.plan.kinds import Action, Effect, Fields
from vramscope.steps._frame import Facts, Kind, StepContext


class MoveFields(Fields):
    """What to move, and where to."""

    model: ModelName
    to: DeviceName | None = None


def _run(context: StepContext, fields: MoveFields) -> Facts:
    return context.move(fields.model, fields.to or context.default_device)


def _effect(fields: MoveFields, device: str) -> Effect:
    return Effect(action=Action.MOVE, model=fields.model, to=fields.to or device)


STEP = Kind(
    name="move",
    fields=MoveFields,
    run=_run,
    example="move: {model: qwen, to: cuda:0}",
    scalar="model",
    effect=_effect,
)

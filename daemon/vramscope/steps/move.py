"""Moves a loaded model to another device.

    - move: qwen
    - move: {model: qwen, to: cpu}

`to` is `cpu` or `cuda:N`; without it the plan's `device`. Every parameter and buffer is copied, in the order of
PyTorch's Module.to(), with tied parameters copied once. A model that does not fit is left where it was.
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

"""Gives back everything that a loaded model holds.

    - unload: qwen

The model's tensors are dropped wherever they are. PyTorch keeps the device memory that this frees, for the next model,
until a `release` step.
"""

from vramscope.plan.fields import ModelName
from vramscope.plan.kinds import Action, Effect, Fields
from vramscope.steps._frame import Facts, Kind, StepContext


class UnloadFields(Fields):
    """What to unload."""

    model: ModelName


def _run(context: StepContext, fields: UnloadFields) -> Facts:
    return context.unload(fields.model)


def _effect(fields: UnloadFields, _device: str) -> Effect:
    return Effect(action=Action.UNLOAD, model=fields.model)


STEP = Kind(name="unload", fields=UnloadFields, run=_run, example="unload: qwen", scalar="model", effect=_effect)

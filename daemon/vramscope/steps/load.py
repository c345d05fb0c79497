"""Loads a model from its files into memory.

    - load: qwen
    - load: {model: qwen, to: cuda:0}

The model's files are read and become the parameters of a PyTorch module, in the plan's dtype. `to` is where they end:
`cpu` (system RAM, the default), or a device, to which each tensor then streams straight from the file; where weights
are fused or otherwise computed while they are loaded, the model is loaded to RAM and moved.
"""

from vramscope.plan.fields import DeviceName, ModelName
from vramscope.plan.kinds import Action, Effect, Fields
from vramscope.steps._frame import Facts, Kind, StepContext


class LoadFields(Fields):
    """What to load, and where to."""

    model: ModelName
    to: DeviceName = "cpu"


def _run(context: StepContext, fields: LoadFields) -> Facts:
    return context.load(fields.model, fields.to)


def _effect(fields: LoadFields, _device: str) -> Effect:
    return Effect(action=Action.LOAD, model=fields.model, to=fields.to)


STEP = Kind(name="load", fields=LoadFields, run=_run, example="load: qwen", scalar="model", effect=_effect)

"""Ends the worker process and starts a new one, which is the only way to give a CUDA context back.

    - restart_worker

A context takes some hundred MiB of VRAM from the first use of a device to the end of the process, whatever is unloaded
or released. Every model must be unloaded before.
"""

from vramscope.plan.kinds import Action, Effect, Fields
from vramscope.steps._frame import Facts, Kind, StepContext


class RestartFields(Fields):
    """A restart has no fields."""


def _run(context: StepContext, _fields: RestartFields) -> Facts:
    return context.prepare_restart()


def _effect(_fields: RestartFields, _device: str) -> Effect:
    return Effect(action=Action.RESTART)


STEP = Kind(name="restart_worker", fields=RestartFields, run=_run, example="restart_worker", effect=_effect)

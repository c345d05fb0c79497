"""Gives the memory that PyTorch caches, and no tensor uses, back to the driver.

    - release

This is torch.cuda.empty_cache() on every device: after it, what is reserved is what allocated tensors need. It frees
nothing that a loaded model uses, and the CUDA context stays.
"""

from vramscope.plan.kinds import Action, Effect, Fields
from vramscope.steps._frame import Facts, Kind, StepContext


class ReleaseFields(Fields):
    """A release has no fields."""


def _run(context: StepContext, _fields: ReleaseFields) -> Facts:
    return context.release_cache()


def _effect(_fields: ReleaseFields, _device: str) -> Effect:
    return Effect(action=Action.RELEASE)


STEP = Kind(name="release", fields=ReleaseFields, run=_run, example="release", effect=_effect)

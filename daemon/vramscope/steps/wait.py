"""Waits, so that dashboards and nvidia-smi show the state that the steps before have made.

    - wait: 30s

The duration is a number with a unit (`250ms`, `30s`, `5m`, `1h30m`) or a bare number of seconds. Memory is sampled
meanwhile, and the wait ends at once when the run is stopped.
"""

from vramscope.plan.fields import Seconds
from vramscope.plan.kinds import Fields
from vramscope.steps._frame import Facts, Kind, StepContext


class WaitFields(Fields):
    """How long to wait."""

    duration: Seconds


def _run(context: StepContext, fields: WaitFields) -> Facts:
    context.sleep(fields.duration)
    return {}


STEP = Kind(name="wait", fields=WaitFields, run=_run, example="wait: 30s", scalar="duration")

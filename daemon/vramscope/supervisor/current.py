"""The plan that runs now, and what is looked up in it. One object for all who need it, so that they change together."""

from collections.abc import Mapping

from vramscope.plan.kinds import Effect
from vramscope.plan.schema import Plan, named_steps
from vramscope.steps.wait import WaitFields


class CurrentPlan:
    """Holds a plan; only the runner exchanges it, at the boundary between two steps."""

    def __init__(self, plan: Plan) -> None:
        self.adopt(plan)

    def adopt(self, plan: Plan) -> None:
        self.plan = plan
        steps = tuple(named_steps(plan.steps))
        self._models = frozenset(plan.models)
        self._steps = frozenset(step.name for step in steps)
        self._effects = {step.name: step.effect for step in steps}
        self._waits = {step.name: step.fields.duration for step in steps if isinstance(step.fields, WaitFields)}

    def model_names(self) -> frozenset[str]:
        return self._models

    def step_names(self) -> frozenset[str]:
        return self._steps

    def effect(self, step: str) -> Effect:
        return self._effects[step]

    def waits(self) -> Mapping[str, float]:
        """Step to the seconds that it is meant to take."""
        return self._waits

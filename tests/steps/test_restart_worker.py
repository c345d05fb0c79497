import pytest

from vramscope.errors import StepError
from vramscope.plan.kinds import Action, Effect
from vramscope.steps.restart_worker import STEP


def test_asks_for_a_restart_and_tells_the_plan_so(make_context) -> None:
    assert STEP.run(make_context(), STEP.fields()) == {}
    assert STEP.effect(STEP.fields(), "cuda:0") == Effect(action=Action.RESTART)


def test_refuses_while_a_model_is_loaded(make_context) -> None:
    context = make_context()
    context.load("qwen", "cpu")
    with pytest.raises(StepError, match="qwen is still loaded"):
        STEP.run(context, STEP.fields())

import pytest

from vramscope.errors import StepCancelledError
from vramscope.plan.kinds import Effect
from vramscope.steps.wait import STEP


def test_a_wait_takes_as_long_as_it_says(context):
    assert STEP.run(context, STEP.fields(duration="1m30s")) == {}
    assert context.now == 90.0


def test_a_cancelled_wait_ends_at_once(make_context):
    context = make_context(cancel_in=0)
    with pytest.raises(StepCancelledError):
        STEP.run(context, STEP.fields(duration="1h"))
    assert context.now == 0.0


def test_a_wait_has_no_effect():
    assert STEP.effect(STEP.fields(duration=1), "cuda:0") == Effect()

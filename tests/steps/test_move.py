import pytest

from vramscope.errors import OutOfMemoryError
from vramscope.plan.kinds import Action, Effect
from vramscope.steps.move import STEP


def test_a_model_goes_to_the_plans_device_unless_it_is_told_where(make_context):
    context = make_context(default_device="cuda:1", places={"a": "cpu", "b": "cuda:0"})
    STEP.run(context, STEP.fields(model="a"))
    STEP.run(context, STEP.fields(model="b", to="cpu"))
    assert context.places == {"a": "cuda:1", "b": "cpu"}


def test_the_effect_is_the_device_that_it_ends_on():
    assert STEP.effect(STEP.fields(model="a"), "cuda:1") == Effect(action=Action.MOVE, model="a", to="cuda:1")
    assert STEP.effect(STEP.fields(model="a", to="cpu"), "cuda:1").to == "cpu"


def test_a_device_without_room_fails_the_step_and_leaves_the_model_where_it_was(make_context):
    context = make_context(capacity_bytes=0, places={"a": "cpu"})
    with pytest.raises(OutOfMemoryError):
        STEP.run(context, STEP.fields(model="a"))
    assert context.places == {"a": "cpu"}

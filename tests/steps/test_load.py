import pytest

from vramscope.errors import OutOfMemoryError
from vramscope.plan.kinds import Action, Effect
from vramscope.steps.load import STEP


def test_a_model_is_loaded_into_system_ram_unless_it_is_told_where(context):
    assert STEP.run(context, STEP.fields(model="qwen")) == {"bytes": 1000}
    STEP.run(context, STEP.fields(model="llama", to="cuda:1"))
    assert context.places == {"qwen": "cpu", "llama": "cuda:1"}


def test_a_load_is_forced_or_verified_only_where_the_plan_says_so(context):
    STEP.run(context, STEP.fields(model="qwen"))
    assert (context.forced, context.verified) == (False, False)
    STEP.run(context, STEP.fields(model="llama", force=True))
    assert (context.forced, context.verified) == (True, False)
    STEP.run(context, STEP.fields(model="gemma", verify=True))
    assert context.verified


def test_the_effect_is_the_device_that_it_ends_on():
    assert STEP.effect(STEP.fields(model="qwen"), "cuda:0") == Effect(action=Action.LOAD, model="qwen", to="cpu")


def test_a_device_without_room_fails_the_step_and_leaves_nothing(make_context):
    context = make_context(capacity_bytes=0)
    with pytest.raises(OutOfMemoryError, match="cuda:0 has no room for 1000 bytes"):
        STEP.run(context, STEP.fields(model="qwen", to="cuda:0"))
    assert context.places == {}

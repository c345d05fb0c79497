from vramscope.plan.kinds import Action, Effect
from vramscope.steps.unload import STEP


def test_a_model_is_gone_and_its_memory_stays_cached(make_context):
    context = make_context(places={"qwen": "cuda:0"})
    STEP.run(context, STEP.fields(model="qwen"))
    assert context.places == {}
    assert context.cached == {"cuda:0"}


def test_the_effect_is_that_the_model_is_absent():
    assert STEP.effect(STEP.fields(model="qwen"), "cuda:0") == Effect(action=Action.UNLOAD, model="qwen")

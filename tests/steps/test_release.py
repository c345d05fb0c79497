from vramscope.plan.kinds import Action, Effect
from vramscope.steps.release import STEP


def test_what_is_cached_is_given_back_and_models_stay(make_context):
    context = make_context(places={"qwen": "cuda:0"}, cached={"cuda:0", "cuda:1"})
    STEP.run(context, STEP.fields())
    assert context.cached == set()
    assert context.places == {"qwen": "cuda:0"}


def test_the_effect_concerns_no_model():
    assert STEP.effect(STEP.fields(), "cuda:0") == Effect(action=Action.RELEASE)

from vramscope.plan.kinds import Action, Effect
from vramscope.steps.fetch import STEP


def test_a_model_is_fetched_and_not_loaded(context):
    assert STEP.run(context, STEP.fields(model="qwen")) == {"bytes": context.model_bytes}
    assert (context.fetched, context.places) == (["qwen"], {})


def test_it_changes_nothing_about_where_a_model_lives():
    assert STEP.effect(STEP.fields(model="qwen"), "cuda:0") == Effect(action=Action.NOTHING, model="qwen")

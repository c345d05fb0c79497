import pytest

from vramscope.plan.kinds import Effect
from vramscope.steps.tokenize import STEP


@pytest.mark.parametrize(("text", "tokens"), [("", 0), ("abc", 3), ("从", 3)])
def test_any_text_is_counted_without_loading_the_model(context, text, tokens):
    assert STEP.run(context, STEP.fields(model="qwen", text=text)) == {"tokens": tokens}
    assert context.places == {}


def test_the_effect_names_the_model_and_moves_it_nowhere():
    assert STEP.effect(STEP.fields(model="qwen", text="a"), "cuda:0") == Effect(model="qwen")

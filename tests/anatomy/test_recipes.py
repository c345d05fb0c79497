import pytest

from vramscope.anatomy.recipes import RECIPES, recipe
from vramscope.errors import SourceError

PUBLISHED = {
    "qwen2.5-0.5b": (494_032_768, 290),
    "qwen2.5-1.5b": (1_543_714_304, 338),
    "llama-3.2-1b": (1_235_814_400, 146),
}


@pytest.mark.parametrize(("name", "counts"), PUBLISHED.items())
def test_counts_are_those_of_the_published_model(name, counts):
    made = RECIPES[name]
    assert (made.parameters, len(made.tensors)) == counts
    assert made.tensor_bytes == 2 * made.parameters


def test_tiny_is_small():
    assert RECIPES["tiny"].tensor_bytes < 500_000


@pytest.mark.parametrize("name", RECIPES)
def test_names_and_shapes_are_those_of_the_model_that_transformers_builds(name):
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**RECIPES[name].config)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    built = [(key, tuple(tensor.shape)) for key, tensor in model.state_dict().items() if key != "lm_head.weight"]
    assert [(tensor.name, tensor.shape) for tensor in RECIPES[name].tensors] == built
    assert RECIPES[name].parameters == model.num_parameters()


def test_an_unknown_name_gets_the_nearest_and_all():
    with pytest.raises(SourceError) as caught:
        recipe("Qwen2.5-05b")
    assert str(caught.value) == (
        "synthetic:Qwen2.5-05b: no such model (did you mean 'qwen2.5-0.5b'?)"
        " (there are qwen2.5-0.5b, qwen2.5-1.5b, llama-3.2-1b, tiny)"
    )
    with pytest.raises(SourceError, match=r"synthetic:zzz: no such model \(there are "):
        recipe("zzz")

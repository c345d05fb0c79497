"""Decoders known by heart, against the classes themselves."""

import warnings

import pytest
from tests.anatomy.cases import SIZES

from vramscope.anatomy.decoder import compare, planned_tensors
from vramscope.anatomy.header import TensorEntry

BASE = SIZES | {"tie_word_embeddings": False}
KNOWN = {
    "llama": ("llama", "LlamaForCausalLM", {}),
    "llama-tied": ("llama", "LlamaForCausalLM", {"tie_word_embeddings": True}),
    "llama-biases": ("llama", "LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True}),
    "llama-grouped": ("llama", "LlamaForCausalLM", {"num_key_value_heads": 1, "head_dim": 4}),
    "llama-heads-not-stated": ("llama", "LlamaForCausalLM", {"num_key_value_heads": None}),
    "mistral": ("mistral", "MistralForCausalLM", {"num_key_value_heads": 1}),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", {}),
    "qwen3": ("qwen3", "Qwen3ForCausalLM", {"head_dim": 8}),
    "qwen3-biases": ("qwen3", "Qwen3ForCausalLM", {"attention_bias": True}),
}


def config_of(kind, architecture, changes):
    stated = BASE | {"model_type": kind, "architectures": [architecture]} | changes
    return {key: value for key, value in stated.items() if value is not None}


@pytest.mark.parametrize("name", KNOWN)
def test_tensors_are_those_of_the_class(name):
    import torch
    import transformers

    config = config_of(*KNOWN[name])
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        model_class = getattr(transformers, KNOWN[name][1])
        fields = {key: value for key, value in config.items() if key not in {"model_type", "architectures"}}
        model = model_class(model_class.config_class(**fields))
    expected = {name: tuple(tensor.shape) for name, tensor in model.named_parameters()}
    assert {tensor.name: tensor.shape for tensor in planned_tensors(config)} == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"model_type": "gpt2"},
        {"model_type": ["llama"]},
        {"architectures": ["LlamaModel"]},
        {"architectures": None},
        {"hidden_size": "16"},
        {"num_hidden_layers": True},
        {"num_hidden_layers": 10**12},
        {"vocab_size": -1},
        {"head_dim": 0},
        {"model_type": "mistral", "architectures": ["MistralForCausalLM"], "num_key_value_heads": None},
    ],
)
def test_what_is_not_known_for_sure_is_not_planned(changes):
    config = config_of("llama", "LlamaForCausalLM", {})
    assert planned_tensors(config) is not None
    assert planned_tensors({key: value for key, value in (config | changes).items() if value is not None}) is None


def test_a_checkpoint_beside_its_plan():
    planned = planned_tensors(config_of("llama", "LlamaForCausalLM", {}))
    stored = {tensor.name: tensor.shape for tensor in planned}
    del stored["model.norm.weight"]
    stored |= {"mtp.weight": (3,), "lm_head.weight": (9, 9)}
    entries = [TensorEntry(name, "F32", shape, 0, 0, 0) for name, shape in stored.items()]
    found = compare(planned, entries, tied=False)
    assert found.missing == ("model.norm.weight",)
    assert found.unexpected == ("mtp.weight",)
    assert found.misshapen == ("lm_head.weight",)

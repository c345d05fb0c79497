"""Inspection foretells what a load has in memory, for every architecture that the tests know."""

from collections import defaultdict
from functools import cache

import pytest
import torch
import transformers
from tests.loading.checkpoints import ARCHITECTURES, load, resolve_directory

from vramscope.anatomy.census import Share
from vramscope.anatomy.components import component_of
from vramscope.anatomy.inspection import Wanted, inspect
from vramscope.loading.order import slots

_SIZES = {"vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "pad_token_id": 0}
_EXPERTS = {"n_routed_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
_GROUPS = {"n_group": 1, "topk_group": 1, "first_k_dense_replace": 1}
_LATENT = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "v_head_dim": 8}
_STACKS = {"encoder_layers": 1, "decoder_layers": 1, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "d_model": 32}
_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
# Classes that keep some parameters in float32, or store buffers, which only their code tells.
SPECIAL = {
    "deepseek_v3": ("DeepseekV3ForCausalLM", _SIZES | _EXPERTS | _GROUPS | _LATENT | {"num_attention_heads": 4}),
    "gpt_oss": ("GptOssForCausalLM", _SIZES | _EXPERTS | _HEADS),
    "bart": ("BartForConditionalGeneration", _STACKS | {"vocab_size": 96, "pad_token_id": 0}),
    "gemma3_text": ("Gemma3ForCausalLM", _SIZES | _HEADS),
}


@pytest.fixture(scope="module")
def special(tmp_path_factory):
    """The directory of a checkpoint by its model_type; made once."""

    @cache
    def made(name):
        class_name, fields = SPECIAL[name]
        model_class = getattr(transformers, class_name)
        directory = tmp_path_factory.mktemp(name)
        model_class(model_class.config_class(**fields)).to(torch.bfloat16).save_pretrained(directory)
        return directory

    return made


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_parameters_bytes_and_parts(checkpoints, name, dtype):
    is_foretold(checkpoints(name), dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("name", SPECIAL)
def test_what_only_the_code_of_a_class_tells(special, name, dtype):
    is_foretold(special(name), dtype)


def is_foretold(directory, dtype):
    found = inspect(Wanted(source=str(directory), dtype=dtype), directory)
    assert found.problems == ()
    model, _ = load(resolve_directory(directory), getattr(torch, dtype))
    parts = defaultdict(lambda: [0, 0])
    for slot in slots(model):
        if not slot.is_buffer:
            part = parts[str(component_of(slot.name))]
            part[0] += slot.tensor.numel()
            part[1] += slot.tensor.nbytes
    assert found.parameters == sum(count for count, _ in parts.values())
    assert found.whole.nbytes == sum(nbytes for _, nbytes in parts.values())
    expected = {part: Share(parameters=count, nbytes=nbytes) for part, (count, nbytes) in sorted(parts.items())}
    assert found.components == expected

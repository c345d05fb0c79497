import warnings
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.anatomy.components import Component, component_of

NAMES = {
    "embedding": [
        "model.embed_tokens.weight",
        "transformer.wte.weight",
        "wpe.weight",
        "bert.embeddings.word_embeddings.weight",
        "bert.embeddings.token_type_embeddings.weight",
        "model.decoder.embed_positions.weight",
        "transformer.word_embeddings.weight",
        "gpt_neox.embed_in.weight",
        "shared.weight",
        "text_model.embeddings.token_embedding.weight",
    ],
    "attention": [
        "model.layers.0.self_attn.q_proj.bias",
        "transformer.h.0.attn.c_attn.weight",
        "transformer.h.0.attn.c_proj.weight",
        "bert.encoder.layer.0.attention.self.query.weight",
        "bert.encoder.layer.0.attention.output.dense.weight",
        "transformer.h.0.self_attention.query_key_value.weight",
        "model.layers.0.self_attn.gate_proj.weight",
        "model.layers.0.self_attn.sinks",
        "model.layers.0.linear_attn.in_proj_qkvz.weight",
        "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "transformer.blocks.0.norm_attn_norm.attn.Wqkv.weight",
        "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight",
    ],
    "mlp": [
        "model.layers.0.mlp.gate_proj.weight",
        "transformer.h.0.mlp.c_fc.weight",
        "bert.encoder.layer.0.intermediate.dense.weight",
        "bert.encoder.layer.0.output.dense.weight",
        "model.decoder.layers.0.fc1.weight",
        "model.layers.0.mlp.experts.7.down_proj.weight",
        "model.layers.0.mlp.gate.weight",
        "model.layers.0.mlp.shared_expert_gate.weight",
        "model.layers.0.block_sparse_moe.gate.weight",
        "model.layers.0.block_sparse_moe.experts.3.w2.weight",
        "encoder.block.0.layer.1.DenseReluDense.wo.weight",
    ],
    "norm": [
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.self_attn_layer_norm.bias",
        "model.norm.weight",
        "transformer.h.0.ln_1.weight",
        "transformer.h.0.ln_attn.weight",
        "ln_f.bias",
        "bert.embeddings.LayerNorm.weight",
        "bert.encoder.layer.0.attention.output.LayerNorm.weight",
        "model.layers.0.pre_feedforward_layernorm.weight",
        "transformer.blocks.0.norm_attn_norm.norm_1.weight",
        "model.layers.0.self_attn.kv_a_layernorm.weight",
    ],
    "lm_head": ["lm_head.weight", "lm_head.bias", "embed_out.weight", "cls.predictions.decoder.weight"],
    "vision": [
        "model.vision_tower.vision_model.encoder.layers.0.self_attn.q_proj.weight",
        "vision_model.embeddings.patch_embedding.weight",
        "vision_model.post_layernorm.weight",
        "visual.blocks.0.mlp.fc1.weight",
        "model.multi_modal_projector.linear_1.weight",
        "model.image_newline",
    ],
    "other": [
        "",
        ".",
        "weight",
        "a\nb",
        "score.weight",
        "logit_scale",
        "mtp.fc.weight",
        "audio_tower.layers.0.fc1.weight",
    ],
}


@pytest.mark.parametrize(("component", "name"), [(part, name) for part, names in NAMES.items() for name in names])
def test_names_of_real_models(component, name):
    assert component_of(name) == component


@given(st.text())
def test_any_string_is_a_name(name):
    assert component_of(name) in set(Component)


SMALL = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "tie_word_embeddings": False,
    "pad_token_id": 0,
}
MOE = {"num_experts": 4, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8, "decoder_sparse_step": 1}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 16,
}
LLAVA = {
    "text_config": SMALL | {"model_type": "llama"},
    "vision_config": VISION | {"patch_size": 8, "model_type": "siglip_vision_model"},
}
DENSE = {"embedding", "attention", "mlp", "norm", "lm_head"}
MODELS = {
    "llama": (SMALL, DENSE),
    "qwen2": (SMALL, DENSE),
    "qwen3": (SMALL | {"head_dim": 8}, DENSE),
    "qwen2_moe": (SMALL | MOE, DENSE),
    "mixtral": (SMALL | {"num_local_experts": 4}, DENSE),
    "gemma2": (SMALL | {"head_dim": 8}, DENSE),
    "phi": (SMALL, DENSE),
    "falcon": (SMALL | {"new_decoder_architecture": True}, DENSE),
    "gpt2": ({"vocab_size": 64, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32}, DENSE - {"lm_head"}),
    "opt": (SMALL | {"ffn_dim": 32, "word_embed_proj_dim": 16}, DENSE),
    "bert": (SMALL, DENSE),
    "llava": (LLAVA, DENSE | {"vision"}),
}


@pytest.mark.parametrize(("kind", "fields", "parts"), [(kind, *rest) for kind, rest in MODELS.items()], ids=MODELS)
def test_a_whole_model_is_its_parts(kind, fields, parts):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # transformers deprecates fields of its own configs
        counts = _count(kind, fields)
    assert set(counts) == parts, counts
    if kind not in {"gpt2", "llava", "falcon"}:
        assert counts["embedding"] >= 64 * 16
        assert counts["lm_head"] >= 64 * 16


def _count(kind: str, fields: dict[str, object]) -> Counter[str]:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, AutoModelForMaskedLM

    by_kind = {"llava": AutoModelForImageTextToText, "bert": AutoModelForMaskedLM}
    config = AutoConfig.for_model(kind, **fields)
    with torch.device("meta"):
        model = by_kind.get(kind, AutoModelForCausalLM).from_config(config)
    counts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        counts[component_of(name)] += parameter.numel()
    assert counts.total() == model.num_parameters()
    return counts

"""Makes tiny checkpoints of many architectures, saved as transformers saves them, and loads them as a step does."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import transformers
from tests.loading.monitor import RecordingMonitor
from torch import nn

from vramscope.anatomy.source import Checkpoint, resolve
from vramscope.loading import loader

_SIZES = {"vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_DECODER = {**_SIZES, "intermediate_size": 64, "num_key_value_heads": 2, "max_position_embeddings": 64}
_ENCODER = {**_SIZES, "intermediate_size": 64, "max_position_embeddings": 64}
_IMAGE = {**_SIZES, "intermediate_size": 64, "image_size": 8, "patch_size": 4}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}

# transformers' class, and the fields of its config that make it tiny.
ARCHITECTURES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertForMaskedLM", _ENCODER),
    "falcon": ("FalconForCausalLM", {**_SIZES, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "gemma2": ("Gemma2ForCausalLM", {**_DECODER, "head_dim": 8, "sliding_window": 16}),
    "gpt2": ("GPT2LMHeadModel", {"vocab_size": 96, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}),
    "llama": ("LlamaForCausalLM", {**_DECODER, "tie_word_embeddings": False}),
    "llava": ("LlavaForConditionalGeneration", {}),
    "mistral": ("MistralForCausalLM", _DECODER),
    "mixtral": ("MixtralForCausalLM", {**_DECODER, "num_local_experts": 4}),
    "opt": (
        "OPTForCausalLM",
        {**_SIZES, "ffn_dim": 64, "word_embed_proj_dim": 16, "max_position_embeddings": 64, "pad_token_id": 1},
    ),
    "phi": ("PhiForCausalLM", {**_DECODER, "num_key_value_heads": 4}),
    "qwen2": ("Qwen2ForCausalLM", {**_DECODER, "tie_word_embeddings": True}),
    "qwen2-moe": ("Qwen2MoeForCausalLM", {**_DECODER, **_EXPERTS, "shared_expert_intermediate_size": 32}),
    "t5": (
        "T5ForConditionalGeneration",
        {"vocab_size": 96, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4},
    ),
    "vit": ("ViTForImageClassification", _IMAGE),
}


def save_checkpoint(name: str, directory: Path, dtype: torch.dtype = torch.bfloat16, **changes: Any) -> Path:
    """Write a checkpoint of the architecture `name`, its config changed, with random weights, all of them finite."""
    class_name, fields = ARCHITECTURES[name]
    model_class = getattr(transformers, class_name)
    model = model_class(_llava() if name == "llava" else model_class.config_class(**fields | changes))
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / 8)
    model.to(dtype).save_pretrained(directory)
    return directory


def _llava() -> Any:
    return transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**_IMAGE),
        text_config=transformers.LlamaConfig(**_DECODER),
        image_token_index=95,
    )


def load(checkpoint: Checkpoint, dtype: torch.dtype) -> tuple[nn.Module, tuple[str, ...]]:
    """The model on the host, and the names of the tensors that it has no use for."""
    loaded = loader.load(checkpoint, dtype, RecordingMonitor())
    return loaded.module, loaded.unexpected


def resolve_directory(directory: Path) -> Checkpoint:
    return resolve(str(directory), directory)

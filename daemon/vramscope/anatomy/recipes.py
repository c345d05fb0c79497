"""The models that vramscope can make itself: their published config.json, and from it every tensor's name and shape."""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vramscope.anatomy.decoder import ELEMENT_BYTES, TensorPlan, decoder_tensors
from vramscope.errors import SourceError


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One model: the architecture of a published one, with random weights.

    `tensors` are in the order of the model's state dict. `shard_bytes` is the most that one weight file takes (None is
    a single file). A change in what is written needs a new `version`, so that older copies in a cache are not used.
    """

    name: str
    config: Mapping[str, Any]
    shard_bytes: int | None = None
    version: int = 1
    tensors: tuple[TensorPlan, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tensors", tuple(decoder_tensors(self.config)))

    @property
    def parameters(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)

    @property
    def tensor_bytes(self) -> int:
        return self.parameters * ELEMENT_BYTES


def recipe(name: str) -> Recipe:
    """Find the recipe `name`; SourceError with the nearest name and all others if there is none."""
    if name in RECIPES:
        return RECIPES[name]
    nearest = difflib.get_close_matches(name.lower(), RECIPES, n=1)
    meant = f" (did you mean {nearest[0]!r}?)" if nearest else ""
    raise SourceError(f"synthetic:{name[:100]}: no such model{meant}", hint=f"there are {', '.join(RECIPES)}")


def _qwen2(**sizes: int) -> dict[str, Any]:
    """Build the config.json of a Qwen2.5 base model (https://huggingface.co/Qwen/Qwen2.5-0.5B/blob/main/config.json)."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "attention_dropout": 0.0,
        "bos_token_id": 151643,
        "eos_token_id": 151643,
        "hidden_act": "silu",
        "initializer_range": 0.02,
        "model_type": "qwen2",
        "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0,
        "tie_word_embeddings": True,
        "torch_dtype": "bfloat16",
        "transformers_version": "4.40.1",
        "use_cache": True,
        "use_mrope": False,
        "use_sliding_window": False,
        "vocab_size": 151936,
        **sizes,
    }


_QWEN2_5_0_5B = _qwen2(
    hidden_size=896,
    intermediate_size=4864,
    max_position_embeddings=32768,
    max_window_layers=24,
    num_attention_heads=14,
    num_hidden_layers=24,
    num_key_value_heads=2,
    sliding_window=32768,
)

_QWEN2_5_1_5B = _qwen2(
    hidden_size=1536,
    intermediate_size=8960,
    max_position_embeddings=131072,
    max_window_layers=28,
    num_attention_heads=12,
    num_hidden_layers=28,
    num_key_value_heads=2,
    sliding_window=131072,
)

# https://huggingface.co/meta-llama/Llama-3.2-1B/blob/main/config.json
_LLAMA_3_2_1B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "attention_bias": False,
    "attention_dropout": 0.0,
    "bos_token_id": 128000,
    "eos_token_id": 128001,
    "head_dim": 64,
    "hidden_act": "silu",
    "hidden_size": 2048,
    "initializer_range": 0.02,
    "intermediate_size": 8192,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 16,
    "num_key_value_heads": 8,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.45.0.dev0",
    "use_cache": True,
    "vocab_size": 128256,
}

_TINY = _qwen2(
    bos_token_id=0,
    eos_token_id=0,
    hidden_size=64,
    intermediate_size=128,
    max_position_embeddings=512,
    max_window_layers=2,
    num_attention_heads=4,
    num_hidden_layers=2,
    num_key_value_heads=2,
    sliding_window=512,
    vocab_size=1024,
)

RECIPES: Mapping[str, Recipe] = {
    made.name: made
    for made in (
        Recipe(name="qwen2.5-0.5b", config=_QWEN2_5_0_5B),
        # Published as one file; in two shards here, so that a full-size model takes the sharded path, too.
        Recipe(name="qwen2.5-1.5b", config=_QWEN2_5_1_5B, shard_bytes=2_000_000_000),
        Recipe(name="llama-3.2-1b", config=_LLAMA_3_2_1B),
        Recipe(name="tiny", config=_TINY),
    )
}

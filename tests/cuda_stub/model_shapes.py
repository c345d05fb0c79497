"""Models with the structure of well known ones and no weights, and the order in which Module.to() moves tensors."""

from collections.abc import Callable, Iterator

import torch
from transformers import (
    AutoModelForCausalLM,
    BertConfig,
    BertModel,
    GPT2Config,
    LlamaConfig,
    MixtralConfig,
    PretrainedConfig,
    Qwen2Config,
    Qwen2MoeConfig,
)


def qwen2(hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, **other: object) -> Qwen2Config:
    """Qwen2.5's family; the small ones share embedding and output, and have a vocabulary of 151,936."""
    return Qwen2Config(
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        max_position_embeddings=32768,
        **{"vocab_size": 151936, "tie_word_embeddings": True, **other},
    )


def llama_3_2_1b() -> LlamaConfig:
    return LlamaConfig(
        hidden_size=2048,
        intermediate_size=8192,
        num_hidden_layers=16,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=64,
        vocab_size=128256,
        tie_word_embeddings=True,
    )


def llama_2_7b() -> LlamaConfig:
    return LlamaConfig(
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        vocab_size=32000,
        tie_word_embeddings=False,
    )


def qwen_moe() -> Qwen2MoeConfig:
    return Qwen2MoeConfig(
        hidden_size=2048,
        intermediate_size=5632,
        moe_intermediate_size=1408,
        shared_expert_intermediate_size=5632,
        num_hidden_layers=24,
        num_attention_heads=16,
        num_key_value_heads=16,
        num_experts=60,
        num_experts_per_tok=4,
        vocab_size=151936,
        tie_word_embeddings=False,
    )


def mixtral_of_4_layers() -> MixtralConfig:
    return MixtralConfig(hidden_size=4096, intermediate_size=14336, num_hidden_layers=4, num_local_experts=8)


def qwen2_7b() -> Qwen2Config:
    return qwen2(3584, 18944, 28, 28, 4, vocab_size=152064, tie_word_embeddings=False)


SHAPES: dict[str, tuple[Callable[[], PretrainedConfig], torch.dtype]] = {
    "qwen2.5-0.5b": (lambda: qwen2(896, 4864, 24, 14, 2), torch.float16),
    "qwen2.5-0.5b-fp32": (lambda: qwen2(896, 4864, 24, 14, 2), torch.float32),
    "qwen2.5-1.5b": (lambda: qwen2(1536, 8960, 28, 12, 2), torch.bfloat16),
    "qwen2.5-3b": (lambda: qwen2(2048, 11008, 36, 16, 2), torch.bfloat16),
    "qwen2.5-7b": (qwen2_7b, torch.bfloat16),
    "llama-3.2-1b": (llama_3_2_1b, torch.bfloat16),
    "llama-2-7b": (llama_2_7b, torch.float16),
    "gpt2": (GPT2Config, torch.float32),
    "bert-base": (BertConfig, torch.float32),
    "qwen1.5-moe-a2.7b": (qwen_moe, torch.bfloat16),
    "mixtral-4l": (mixtral_of_4_layers, torch.bfloat16),
}


def build(name: str) -> torch.nn.Module:
    """Return the model with storage that nobody has written to, so that it costs no memory."""
    make_config, dtype = SHAPES[name]
    config = make_config()
    with torch.device("meta"):
        is_bert = isinstance(config, BertConfig)
        model = BertModel(config) if is_bert else AutoModelForCausalLM.from_config(config, dtype=dtype)
    model.to_empty(device="cpu")
    model.tie_weights()
    return model.eval()


def move_order(module: torch.nn.Module, seen: set[int] | None = None) -> Iterator[torch.Tensor]:
    """The tensors of Module.to() in its order: children first, then own parameters, then own buffers.

    A parameter met a second time (tied weights) is on the device already and is not moved again; a buffer is, since
    Module.to() puts a new tensor in each place.
    """
    seen = set() if seen is None else seen
    for child in module.children():
        yield from move_order(child, seen)
    for parameter in module._parameters.values():
        if parameter is not None and id(parameter) not in seen:
            seen.add(id(parameter))
            yield parameter
    yield from (buffer for buffer in module._buffers.values() if buffer is not None)

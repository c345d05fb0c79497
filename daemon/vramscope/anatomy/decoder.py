"""The tensors of Llama-shaped decoders, from their config alone, and what a checkpoint of one lacks or has too much."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vramscope.anatomy.header import TensorEntry

DTYPE, ELEMENT_BYTES = "BF16", 2  # in which checkpoints of our own are written
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
_PREFIX = "model."

# transformers' classes that have these tensors and no others, by model_type.
_CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
_NEEDED = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
_QWEN3_HEAD_SIZE = 128
_LAYERS_LIMIT = 4096  # far above any model; a config may say anything


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """A tensor before it is written."""

    name: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.elements * ELEMENT_BYTES


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """A checkpoint beside what its architecture wants. `used` are the names in the files of what it takes."""

    used: frozenset[str]
    missing: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    misshapen: tuple[str, ...] = ()
    renamed: Mapping[str, str] = field(default_factory=dict)


def planned_tensors(config: Mapping[str, Any]) -> tuple[TensorPlan, ...] | None:
    """Every tensor that a model of this config has, in the order of its state dict; None for an architecture not known.

    A config that leaves out what a class would fill in is not known either, where the classes differ in it.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or config.get("architectures") != [_CLASSES.get(kind)]:
        return None
    counts = [config.get(key) for key in _NEEDED]
    heads, head_size = config.get("num_key_value_heads"), config.get("head_dim")
    if kind == "llama" and heads is None:
        heads = config.get("num_attention_heads")
    optional = [] if head_size is None else [head_size]
    if not all(type(count) is int and count > 0 for count in [*counts, heads, *optional]):
        return None
    if config["num_hidden_layers"] > _LAYERS_LIMIT:
        return None
    return tuple(decoder_tensors({**config, "num_key_value_heads": heads}))


def compare(planned: Sequence[TensorPlan], stored: Iterable[TensorEntry], *, tied: bool) -> Comparison:
    """Compare names and shapes. As transformers does: a name may lack the prefix, and one end of a tie is enough."""
    shapes = {tensor.name: tensor.shape for tensor in stored}
    prefix = "" if any(name.startswith(_PREFIX) for name in shapes) else _PREFIX
    in_file = {name if name == HEAD else f"{prefix}{name}": name for name in shapes}
    renamed: dict[str, str] = {}
    if tied and HEAD in in_file:
        head = in_file.pop(HEAD)
        if EMBEDDING not in in_file:
            in_file[EMBEDDING] = head
            renamed[head] = EMBEDDING
    missing, misshapen, used = [], [], set()
    for plan in planned:
        if (name := in_file.pop(plan.name, None)) is None:
            missing.append(plan.name)
        elif shapes[name] == plan.shape:
            used.add(name)
        else:
            misshapen.append(name)
    return Comparison(
        used=frozenset(used),
        missing=tuple(missing),
        unexpected=tuple(sorted(in_file.values())),
        misshapen=tuple(misshapen),
        renamed=renamed,
    )


def decoder_tensors(config: Mapping[str, Any]) -> Iterator[TensorPlan]:
    """Yield every tensor of the decoder: Qwen2 has biases on queries, keys and values, Qwen3 a norm on two of them."""
    hidden, vocabulary = config["hidden_size"], config["vocab_size"]
    yield TensorPlan(EMBEDDING, (vocabulary, hidden))
    for layer in range(config["num_hidden_layers"]):
        yield from _layer_tensors(config, f"model.layers.{layer}.")
    yield TensorPlan("model.norm.weight", (hidden,))
    if not config.get("tie_word_embeddings"):
        yield TensorPlan(HEAD, (vocabulary, hidden))


def _layer_tensors(config: Mapping[str, Any], prefix: str) -> Iterator[TensorPlan]:
    hidden, inner, kind = config["hidden_size"], config["intermediate_size"], config["model_type"]
    head = config.get("head_dim") or (_QWEN3_HEAD_SIZE if kind == "qwen3" else hidden // config["num_attention_heads"])
    queries, keys = head * config["num_attention_heads"], head * config["num_key_value_heads"]
    has_bias = kind in {"llama", "qwen3"} and bool(config.get("attention_bias"))
    for projection, rows in (("q", queries), ("k", keys), ("v", keys)):
        yield TensorPlan(f"{prefix}self_attn.{projection}_proj.weight", (rows, hidden))
        if has_bias or kind == "qwen2":
            yield TensorPlan(f"{prefix}self_attn.{projection}_proj.bias", (rows,))
    yield TensorPlan(f"{prefix}self_attn.o_proj.weight", (hidden, queries))
    if has_bias:
        yield TensorPlan(f"{prefix}self_attn.o_proj.bias", (hidden,))
    if kind == "qwen3":
        yield from (TensorPlan(f"{prefix}self_attn.{norm}_norm.weight", (head,)) for norm in ("q", "k"))
    has_bias = kind == "llama" and bool(config.get("mlp_bias"))
    for name, shape in (("gate", (inner, hidden)), ("up", (inner, hidden)), ("down", (hidden, inner))):
        yield TensorPlan(f"{prefix}mlp.{name}_proj.weight", shape)
        if has_bias:
            yield TensorPlan(f"{prefix}mlp.{name}_proj.bias", shape[:1])
    yield TensorPlan(f"{prefix}input_layernorm.weight", (hidden,))
    yield TensorPlan(f"{prefix}post_attention_layernorm.weight", (hidden,))

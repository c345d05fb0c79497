"""Which part of a model a parameter belongs to, from its name alone.

The set is bounded (it becomes a metric's label): whatever a stranger calls a tensor, it lands in one of these parts.
A name is read from its end, so that the innermost module that means something decides: `self_attn.q_norm` is a norm,
`attention.output.dense` is attention although `output.dense` alone is the second half of BERT's feed-forward block.
"""

import re
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import lru_cache


class Component(StrEnum):
    """The parts. Experts and routers are mlp; a vision tower is vision whole, with its projector."""

    EMBEDDING = "embedding"
    ATTENTION = "attention"
    MLP = "mlp"
    NORM = "norm"
    LM_HEAD = "lm_head"
    VISION = "vision"
    OTHER = "other"


_NUMBER = re.compile(r"(?<=\.)[0-9]+(?=\.)")
_VISION = frozenset({"vit", "image_newline", "multi_modal_projector", "mm_projector"})
_EMBEDDING = frozenset({"wte", "wpe", "shared", "emb"})
_LM_HEAD = frozenset({"lm_head", "embed_out", "predictions"})
_MLP = frozenset({"mlp", "ffn", "feed_forward", "densereludense", "experts", "router"})
# Names that decide only where no module around them does: attention, too, may have a gate_proj.
_MLP_LEAVES = frozenset(
    {
        "fc1",
        "fc2",
        "w1",
        "w2",
        "w3",
        "wi",
        "gate_proj",
        "up_proj",
        "down_proj",
        "gate_up_proj",
        "intermediate",
        "output",
    }
)


def component_of(name: str) -> Component:
    """Tell the part of the parameter `name`; any string is a name, and an unknown one is `other`."""
    return _part_of(_NUMBER.sub("0", name))  # layers and experts have the same names but for their numbers


@lru_cache(maxsize=1 << 13)
def _part_of(name: str) -> Component:
    modules = name.lower().split(".")
    if any("vision" in module or "visual" in module or module in _VISION for module in modules):
        return Component.VISION
    if any("audio" in module for module in modules):
        return Component.OTHER
    return _innermost(modules, _by_module) or _innermost(modules, _by_leaf) or Component.OTHER


def _innermost(modules: list[str], part_of: Callable[[str], Component | None]) -> Component | None:
    parts: Iterable[Component | None] = (part_of(module) for module in reversed(modules))
    return next((part for part in parts if part is not None), None)


def _by_module(module: str) -> Component | None:
    if "norm" in module or module == "ln" or module.startswith("ln_"):
        return Component.NORM
    if module in _LM_HEAD:
        return Component.LM_HEAD
    if "attn" in module or "attention" in module:
        return Component.ATTENTION
    if module in _MLP or "moe" in module or module.startswith("shared_expert"):
        return Component.MLP
    if module in _EMBEDDING or "embed" in module:
        return Component.EMBEDDING
    return None


def _by_leaf(module: str) -> Component | None:
    return Component.MLP if module in _MLP_LEAVES else None

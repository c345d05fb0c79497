"""The ways in which quantization methods pack several parameters into one stored number, one rule each.

A rule knows a packed tensor by its name, its dtype and what stands beside it, and counts what it holds. Shapes decide
wherever they can; the config's bits only where shapes leave it open. A count that does not come out even is None.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from vramscope.anatomy.header import DTYPE_BITS, TensorEntry

Item = TypeVar("Item")

_WIDTHS = range(1, 17)  # bits of one parameter; what comes out otherwise was no packing
_FP4_GROUPS = (16, 32)  # parameters a scale: NVFP4, MXFP4
_BY_METHOD = {"fp8": 8, "fbgemm_fp8": 8, "mxfp4": 4, "bitnet": 2}
# Patterns come from the checkpoint: none that could take for ever is tried.
_PATTERN_LIMIT = 300
_QUANTIFIED_GROUP = re.compile(r"\)[*+{?]")
_QUANTIFIER = re.compile(r"[*+{]")
_QUANTIFIERS = 3


@dataclass(frozen=True, kw_only=True)
class Packing:
    """What the rules look at: the method and the section that the config has of it, and all tensors by name."""

    method: str
    section: Mapping[str, Any]
    by_name: Mapping[str, TensorEntry]

    def beside(self, name: str, leaf: str) -> TensorEntry | None:
        """Find the tensor `leaf` of the module that `name` belongs to."""
        owner = name.rpartition(".")[0]
        return self.by_name.get(f"{owner}.{leaf}" if owner else leaf)

    @cached_property
    def stated_bits(self) -> tuple[int, ...]:
        """Every width that the config speaks of, the general one first."""
        if self.groups:
            return tuple(dict.fromkeys(bits for group in self.groups if (bits := _count(group.weights, "num_bits"))))
        if self.section.get("load_in_4bit"):
            return (4,)
        if self.section.get("load_in_8bit"):
            return (8,)
        sections = (self.section, *(part for part in self.section.values() if isinstance(part, Mapping)))
        found = (_count(part, "bits", "w_bit", "weight_bits", "num_bits") for part in sections)
        known = dict.fromkeys(bits for bits in found if bits)
        return tuple(known) or tuple({_BY_METHOD[self.method]} if self.method in _BY_METHOD else ())

    @cached_property
    def group_size(self) -> int | None:
        """How many parameters share a scale, where the config says one number for all."""
        sizes = {_count(group.weights, "group_size") for group in self.groups}
        return sizes.pop() if len(sizes) == 1 else _count(self.section, "group_size", "q_group_size")

    @cached_property
    def groups(self) -> tuple["Group", ...]:
        """The groups of modules that compressed-tensors quantizes in different ways."""
        listed = self.section.get("config_groups")
        values = listed.values() if isinstance(listed, Mapping) else ()
        return tuple(Group.of(value) for value in values if isinstance(value, Mapping))

    def override(self, name: str, key: str) -> int | None:
        """What MLX's config says of the module of the tensor `name`, else of all modules."""
        owner = name.rpartition(".")[0]
        own = self.section.get(owner)
        if own is None:  # a multimodal model has the language part one level down
            own = next((part for path, part in self.section.items() if path and owner.endswith(f".{path}")), None)
        return (_count(own, key) if isinstance(own, Mapping) else None) or _count(self.section, key)


@dataclass(frozen=True, kw_only=True)
class Group:
    """One group of compressed-tensors: which modules, and how their weights are quantized."""

    targets: tuple[str, ...]
    weights: Mapping[str, Any]

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> "Group":
        targets, weights = value.get("targets"), value.get("weights")
        return cls(
            targets=tuple(text for text in targets if isinstance(text, str)) if isinstance(targets, list) else (),
            weights=weights if isinstance(weights, Mapping) else {},
        )

    def names(self, module: str) -> bool:
        """Whether a target means this module by its name; the name of a class such as Linear does not."""
        return any(_matches(target, module) for target in self.targets)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """How one method packs: its name where no config tells it, which tensors are its own, and what they hold."""

    method: str
    is_mine: Callable[[TensorEntry, Packing], bool]
    count: Callable[[TensorEntry, Packing], int | None]


def rule_of(tensor: TensorEntry, packing: Packing) -> Rule | None:
    """Find the rule for a packed tensor; None for one that is not packed, or in a way that no rule knows."""
    return next((rule for rule in RULES if rule.is_mine(tensor, packing)), None)


def _is_word_of_rows(tensor: TensorEntry, packing: Packing) -> bool:
    """Whether `qweight` packs rows, as GPTQ does: its columns are those of the scales."""
    scales = packing.beside(tensor.name, "scales")
    whole = scales is not None and scales.shape[-1:] == tensor.shape[-1:]
    return _leaf(tensor) == "qweight" and (whole or packing.beside(tensor.name, "g_idx") is not None)


def _of_gptq(tensor: TensorEntry, packing: Packing) -> int | None:
    """GPTQ packs the inputs of a layer: [inputs x bits / 32, outputs]. g_idx has one number for each input."""
    if (index := packing.beside(tensor.name, "g_idx")) is not None and index.elements and tensor.shape:
        return _plausible(index.elements * tensor.shape[-1], tensor)
    zeros, scales = packing.beside(tensor.name, "qzeros"), packing.beside(tensor.name, "scales")
    if zeros is not None and scales is not None and scales.elements and zeros.dtype == tensor.dtype:
        bits, rest = divmod(zeros.elements * _width(zeros), scales.elements)
        return _unpacked(tensor, None if rest else bits)
    return _unpacked(tensor, _only(packing.stated_bits))


def _of_awq(tensor: TensorEntry, packing: Packing) -> int | None:
    """AWQ packs the outputs: [inputs, outputs x bits / 32]; its gemv form packs the inputs, and only bits tell."""
    scales = packing.beside(tensor.name, "scales")
    if scales is not None and scales.shape and tensor.shape and tensor.shape[-1]:
        count = tensor.elements // tensor.shape[-1] * scales.shape[-1]
        if _plausible(count, tensor) is not None:
            return count
    return _unpacked(tensor, _only(packing.stated_bits))


def _is_bnb_4_bit(tensor: TensorEntry, packing: Packing) -> bool:
    states = (f"{tensor.name}.quant_state.bitsandbytes__{kind}" for kind in ("nf4", "fp4"))
    return f"{tensor.name}.absmax" in packing.by_name or any(state in packing.by_name for state in states)


def _of_compressed(tensor: TensorEntry, packing: Packing) -> int | None:
    """compressed-tensors packs the inputs: [outputs, inputs / (32 // bits)], the last word of a row filled up."""
    if tensor.dtype == "U8":  # NVFP4 and MXFP4
        return 2 * tensor.elements
    group = _group_of(tensor.name.removesuffix(".weight_packed"), packing)
    bits = _count(group.weights, "num_bits") if group else None
    if not bits or not tensor.shape or not tensor.shape[-1] or packing.section.get("format") == "marlin-24":
        return None
    inputs = tensor.shape[-1] * (_width(tensor) // bits)
    scale, size = packing.beside(tensor.name, "weight_scale"), _count(group.weights, "group_size") if group else None
    if scale is not None and size and len(scale.shape) > 1 and scale.shape[-1] > 1:
        exact = scale.shape[-1] * size
        inputs = exact if 0 <= inputs - exact < _width(tensor) // bits else inputs
    return tensor.elements // tensor.shape[-1] * inputs


def _group_of(module: str, packing: Packing) -> Group | None:
    """The group that a module is in: the one that names it, else the only one that does not go by names."""
    if len({str(sorted(group.weights.items(), key=str)) for group in packing.groups}) == 1:
        return packing.groups[0]
    if named := [group for group in packing.groups if group.names(module)]:
        return named[0]
    others = [group for group in packing.groups if any(target.isidentifier() for target in group.targets)]
    return _only(tuple(others))


def _is_blocks(tensor: TensorEntry, packing: Packing) -> bool:
    stem = tensor.name.removesuffix("blocks")
    return tensor.dtype == "U8" and stem != tensor.name and f"{stem}scales" in packing.by_name


def _is_mlx(tensor: TensorEntry, packing: Packing) -> bool:
    return tensor.dtype == "U32" and _leaf(tensor) == "weight" and packing.beside(tensor.name, "scales") is not None


def _of_mlx(tensor: TensorEntry, packing: Packing) -> int | None:
    """MLX packs the inputs without a gap; a scale a group of them, so that bits and group size check each other."""
    bits, size = packing.override(tensor.name, "bits"), packing.override(tensor.name, "group_size")
    scales = packing.beside(tensor.name, "scales")
    by_groups = scales.elements * size if scales is not None and size else None
    count = _unpacked(tensor, bits)
    if count is not None and by_groups in (None, count):
        return count
    return _plausible(by_groups, tensor) if by_groups else None


def _is_fp4(tensor: TensorEntry, packing: Packing) -> bool:
    scale = packing.beside(tensor.name, "weight_scale")
    fits = scale is not None and any(scale.elements * size == 2 * tensor.elements for size in _FP4_GROUPS)
    return tensor.dtype == "U8" and _leaf(tensor) == "weight" and fits


def _is_bitnet(tensor: TensorEntry, packing: Packing) -> bool:
    return packing.method == "bitnet" and tensor.dtype == "U8" and _leaf(tensor) == "weight"


def _is_int8(tensor: TensorEntry, packing: Packing) -> bool:
    return tensor.dtype == "I8" and any(packing.beside(tensor.name, leaf) for leaf in ("SCB", *_SCALES))


def _is_fp8(tensor: TensorEntry, packing: Packing) -> bool:
    is_8_bit = tensor.dtype.startswith("F8")
    return is_8_bit and any(packing.by_name.get(tensor.name + added) for added in ("_scale", "_scale_inv"))


def _as_stored(tensor: TensorEntry, _packing: Packing) -> int:
    return tensor.elements


def _two_a_byte(tensor: TensorEntry, _packing: Packing) -> int:
    return 2 * tensor.nbytes


_SCALES = ("weight_scale", "weight_scales")
RULES = (
    Rule(method="gptq", is_mine=_is_word_of_rows, count=_of_gptq),
    Rule(method="awq", is_mine=lambda tensor, _: _leaf(tensor) == "qweight", count=_of_awq),
    Rule(method="bitsandbytes", is_mine=_is_bnb_4_bit, count=_two_a_byte),
    Rule(
        method="compressed-tensors",
        is_mine=lambda tensor, _: _leaf(tensor) == "weight_packed",
        count=_of_compressed,
    ),
    Rule(method="mxfp4", is_mine=_is_blocks, count=_two_a_byte),
    Rule(method="mlx", is_mine=_is_mlx, count=_of_mlx),
    Rule(method="fp4", is_mine=_is_fp4, count=_two_a_byte),
    Rule(method="bitnet", is_mine=_is_bitnet, count=lambda tensor, _: 4 * tensor.nbytes),
    Rule(method="int8", is_mine=_is_int8, count=_as_stored),
    Rule(method="fp8", is_mine=_is_fp8, count=_as_stored),
)


def _leaf(tensor: TensorEntry) -> str:
    return tensor.name.rpartition(".")[2]


def _width(tensor: TensorEntry) -> int:
    return DTYPE_BITS[tensor.dtype]


def _unpacked(tensor: TensorEntry, bits: int | None) -> int | None:
    """How many numbers of `bits` bits the tensor holds; they may lie across the borders of its words."""
    if bits is None or bits not in _WIDTHS:
        return None
    count, rest = divmod(8 * tensor.nbytes, bits)
    return None if rest else count


def _plausible(count: int, tensor: TensorEntry) -> int | None:
    """`count`, if so many numbers of some whole width fill the tensor."""
    return count if count and any(count * bits == 8 * tensor.nbytes for bits in _WIDTHS) else None


def _count(section: Mapping[str, Any], *keys: str) -> int | None:
    values = (section.get(key) for key in keys)
    return next((value for value in values if type(value) is int and value > 0), None)


def _only(items: tuple[Item, ...]) -> Item | None:
    return items[0] if len(items) == 1 else None


def _matches(target: str, module: str) -> bool:
    pattern = target.removeprefix("re:")
    if pattern == target:
        return module == target or module.endswith(f".{target}")
    too_much = _QUANTIFIED_GROUP.search(pattern) or len(_QUANTIFIER.findall(pattern)) > _QUANTIFIERS
    if too_much or max(len(pattern), len(module)) > _PATTERN_LIMIT:
        return False
    try:
        return re.match(pattern, module) is not None
    except re.error:
        return False

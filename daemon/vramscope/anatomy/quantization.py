"""How many parameters a checkpoint stands for, where several of them are packed into one stored number.

Each method packs in its own way, and leaves beside the packed numbers what is needed to read them (scales, zero points,
look-up tables), which counts in bytes and never as parameters. What the rules (anatomy/packing.py) cannot tell from
names, shapes and the config is unknown, and is said to be: stored elements are never passed off as parameters.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from vramscope.anatomy.config import quantization_of
from vramscope.anatomy.header import TensorEntry, is_floating
from vramscope.anatomy.packing import Packing, Rule, rule_of

# A checkpoint of these alone has nothing packed, which saves the look at each tensor.
_PLAIN = frozenset({"F64", "F32", "F16", "BF16"})
# Stands beside a weight, by the last part of its name.
_BESIDE = frozenset(
    {
        *("qzeros", "scales", "g_idx", "SCB", "weight_format", "absmax", "quant_map", "nested_absmax"),
        *("nested_quant_map", "nested_offset", "weight_shape", "weight_g_idx", "weight_global_scale", "weight_scales"),
        *("input_scale", "input_scale_ub", "input_global_scale", "input_zero_point", "output_scale", "scaled_fp8"),
        *("activation_scale", "k_scale", "v_scale", "q_scale", "prob_output_scale", "scale_weight", "scale_input"),
    }
)
# Or by what is added to the name of the weight.
_ADDED = ("_scale", "_scale_inv", "_scale_2", "_scales", "_zero_point", "_zeros")


@dataclass(frozen=True, kw_only=True)
class Logical:
    """What stored tensors stand for. `method` is empty for a model that is not quantized.

    `elements` has the logical count of each tensor that is a parameter, `unknown` the names of those whose count cannot
    be told; a tensor in neither stands beside another one. `bits` and `group_size` are what the config says.
    """

    method: str
    elements: Mapping[str, int]
    unknown: tuple[str, ...] = ()
    bits: tuple[int, ...] = ()
    group_size: int | None = None


def count_logical(tensors: Iterable[TensorEntry], config: Mapping[str, Any]) -> Logical:
    """Count the parameters that `tensors` stand for; `config` is that of the model, empty where it is not known."""
    method, section = quantization_of(config)
    packing = Packing(method=method, section=section, by_name={tensor.name: tensor for tensor in tensors})
    plain = all(tensor.dtype in _PLAIN for tensor in packing.by_name.values())
    rules = (
        {} if plain else {name: rule for name, tensor in packing.by_name.items() if (rule := rule_of(tensor, packing))}
    )
    method = method or next((rule.method for rule in rules.values()), "")
    counts: dict[str, int | None] = {}
    for name, tensor in packing.by_name.items():
        if not method:
            counts[name] = tensor.elements
        elif (rule := rules.get(name)) is not None:
            counts[name] = rule.count(tensor, packing)
        elif not _is_beside(name, packing, rules):
            counts[name] = tensor.elements if is_floating(tensor.dtype) else None
    return Logical(
        method=method,
        elements={name: count for name, count in counts.items() if count is not None},
        unknown=tuple(name for name, count in counts.items() if count is None),
        bits=packing.stated_bits,
        group_size=packing.group_size,
    )


def _is_beside(name: str, packing: Packing, rules: Mapping[str, Rule]) -> bool:
    owner, _, leaf = name.rpartition(".")
    if leaf in _BESIDE or leaf.startswith("bitsandbytes__"):
        return True
    if leaf == "biases":  # of MLX, which has a zero point for each group
        return f"{owner}.weight" in rules
    stem = next((name.removesuffix(added) for added in _ADDED if name.endswith(added)), "")
    return any(known in packing.by_name for known in (stem, f"{stem}_packed", f"{stem}_blocks")) or (
        leaf == "scales" and f"{owner}.blocks" in packing.by_name
    )

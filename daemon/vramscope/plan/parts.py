"""The fields of a step that name a part of a model: layers by number, components by name."""

import re
from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from vramscope.anatomy.components import Component
from vramscope.anatomy.parts import LAST_LAYER, Part, part_of
from vramscope.plan.fields import one_of
from vramscope.units import shown

_RANGE = re.compile(r"([0-9]{1,6})(?: ?- ?([0-9]{1,6}))?")
_DIGITS = re.compile(r"[0-9]+( ?- ?[0-9]+)?")
_EXPECTED = "expected a layer or a range of layers such as 3 or 0-11"


def layer_range(value: object) -> str:
    """One layer or a range of layers, both ends included, as `3` or `0-11`."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LAST_LAYER:
        return str(value)
    text = value.strip() if isinstance(value, str) else ""
    match = _RANGE.fullmatch(text)
    if match is None:
        is_large = _DIGITS.fullmatch(text) or (isinstance(value, int) and value > LAST_LAYER)
        limit = f": layers are numbered from 0 to {LAST_LAYER:,} at most" if is_large else ""
        raise ValueError(f"{_EXPECTED}, got {shown(value)}{limit}")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise ValueError(f'{_EXPECTED}, got {shown(value)}, which runs backwards (did you mean "{last}-{first}"?)')
    return str(first) if match[2] is None else f"{first}-{last}"


def _each_range(value: object) -> list[object]:
    """What stands in a list, or is written as one value: `0-3, 20-23`."""
    return list(value.split(",")) if isinstance(value, str) else _each(value, "layers")


def _each_component(value: object) -> list[object]:
    return _each(value, "components")


def _each(value: object, what: str) -> list[object]:
    items = list(value) if isinstance(value, list | tuple) else [value]
    if not items:
        raise ValueError(f"expected at least one of the model's {what}, got an empty list")
    return items


def part_named(layers: Iterable[str] | None, components: Iterable[Component] | None) -> Part | None:
    """The part that a step's fields name; None is the whole model."""
    runs = [(int(first), int(last or first)) for first, _, last in (each.partition("-") for each in layers or ())]
    return part_of(runs, components or ())


_RANGE_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "integer", "minimum": 0, "maximum": LAST_LAYER},
        {"type": "string", "pattern": rf"^\s*{_RANGE.pattern}\s*(,\s*{_RANGE.pattern}\s*)*$"},
    ]
}
_LAYERS: dict[str, Any] = {
    "anyOf": [*_RANGE_SCHEMA["anyOf"], {"type": "array", "items": _RANGE_SCHEMA, "minItems": 1}],
    "description": "Layers by number, both ends included: 3, 0-11, or a list of these.",
    "examples": ["0-11", ["0-3", "20-23"]],
}
_COMPONENT: dict[str, Any] = {"enum": [str(each) for each in Component]}
_COMPONENTS: dict[str, Any] = {
    "anyOf": [_COMPONENT, {"type": "array", "items": _COMPONENT, "minItems": 1}],
    "description": "Components of the model, a list or one of them.",
    "examples": [["embedding", "lm_head"]],
}

# None is the default alone: a key with nothing behind it must not mean the whole model.
Layers = Annotated[
    tuple[Annotated[str, BeforeValidator(layer_range)], ...] | None,
    BeforeValidator(_each_range),
    WithJsonSchema(_LAYERS),
]
Components = Annotated[
    tuple[Annotated[Component, one_of(*Component)], ...] | None,
    BeforeValidator(_each_component),
    WithJsonSchema(_COMPONENTS),
]

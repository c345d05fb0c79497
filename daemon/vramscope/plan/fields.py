"""The types of a plan's fields: what each accepts, and the sentence for what it does not."""

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from vramscope.plan.problems import did_you_mean, expected_one_of
from vramscope.units import (
    DURATION_PATTERN,
    NUMBER_PATTERN,
    SIZE_PATTERN,
    parse_bytes,
    parse_count,
    parse_seconds,
    shown,
)

MAX_NAME = 64

_DEVICE = re.compile(r"cpu|cuda:(0|[1-9][0-9]{0,2})")
_GPU = re.compile(r"(?:cuda|gpu)\W?([0-9]{0,3})", re.IGNORECASE)
_MODEL = re.compile(r"\w[\w.-]*")


def text(value: object) -> str:
    """A text; what YAML reads as a number or a boolean has to be quoted."""
    if isinstance(value, str):
        return value
    hint = " (quote it to make it text)" if isinstance(value, bool | int | float) else ""
    raise ValueError(f"expected text, got {shown(value)}{hint}")


def label(value: object) -> str:
    """A name that is fit for a metric's label and for a terminal."""
    name = text(value)
    if 0 < len(name) <= MAX_NAME and name.isprintable() and name == name.strip():
        return name
    raise ValueError(
        f"expected a name of 1 to {MAX_NAME} printable characters without spaces at its ends, got {shown(name)}"
    )


def model_name(value: object) -> str:
    """A short name for a model, without spaces."""
    name = text(value)
    if len(name) <= MAX_NAME and _MODEL.fullmatch(name):
        return name
    raise ValueError(
        f"expected a name of 1 to {MAX_NAME} letters, digits, dots, dashes and underscores, got {shown(name)}"
    )


def device_name(value: object) -> str:
    """A device as PyTorch spells it, always with its number."""
    if isinstance(value, str) and _DEVICE.fullmatch(value):
        return value
    meant = _GPU.fullmatch(value) if isinstance(value, str) else None
    hint = f' (did you mean "cuda:{int(meant[1] or 0)}"?)' if meant else did_you_mean(value, ["cpu", "cuda:0"])
    raise ValueError(f"expected cpu or cuda:N, got {shown(value)}{hint}")


def positive_seconds(value: object) -> float:
    """A duration that is not 0."""
    seconds = parse_seconds(value)
    if seconds == 0:
        raise ValueError(f"expected a duration longer than 0, got {shown(value)}")
    return seconds


def one_of(*names: str) -> BeforeValidator:
    """Accepts the given words; stands beside a Literal or an Enum, which gives the type."""

    def check(value: object) -> object:
        if isinstance(value, str) and value in names:
            return value
        raise ValueError(expected_one_of(names, value))

    return BeforeValidator(check)


def _read_by(parse: Callable[[object], object], **schema: Any) -> tuple[BeforeValidator, WithJsonSchema]:
    return BeforeValidator(parse), WithJsonSchema(schema)


# What Python's \w and its neighbours allow in ASCII, and anything beyond it: expressions of editors know no more.
_ASCII_NAME = r"^[^\x00-/:-@\[-^`{-\x7f][^\x00-,/:-@\[-^`{-\x7f]*$"
_DURATION: dict[str, Any] = {
    "anyOf": [{"type": "string", "pattern": DURATION_PATTERN}, {"type": "number", "minimum": 0}],
    "description": "A duration such as 250ms, 30s, 5m or 1h30m, or a number of seconds.",
    "examples": ["30s", "1h30m"],
}
_SIZE: dict[str, Any] = {
    "anyOf": [{"type": "string", "pattern": SIZE_PATTERN}, {"type": "integer", "minimum": 0}],
    "description": "A size such as 512MiB (powers of 1024) or 10GB (powers of 1000), or a number of bytes.",
    "examples": ["512MiB", "10GB"],
}
COUNT_SCHEMA: dict[str, Any] = {
    "anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": NUMBER_PATTERN}]
}
_LABEL: dict[str, Any] = {"type": "string", "minLength": 1, "maxLength": MAX_NAME, "pattern": r"^\S(.*\S)?$"}
_MODEL_NAME: dict[str, Any] = {
    "type": "string",
    "maxLength": MAX_NAME,
    "pattern": _ASCII_NAME,
    "description": "The name of a model, as `models` has it.",
}
_DEVICE_NAME: dict[str, Any] = {
    "type": "string",
    "pattern": rf"^({_DEVICE.pattern})$",
    "description": "cpu (system RAM), or cuda:N.",
    "examples": ["cpu", "cuda:0"],
}

Text = Annotated[str, BeforeValidator(text)]
Name = Annotated[str, *_read_by(label, **_LABEL)]
StepName = Name
ModelName = Annotated[str, *_read_by(model_name, **_MODEL_NAME)]
DeviceName = Annotated[str, *_read_by(device_name, **_DEVICE_NAME)]
Bytes = Annotated[int, *_read_by(parse_bytes, **_SIZE)]
Seconds = Annotated[float, *_read_by(parse_seconds, **_DURATION)]
PositiveSeconds = Annotated[float, *_read_by(positive_seconds, **_DURATION)]
Count = Annotated[int, *_read_by(parse_count, **COUNT_SCHEMA)]

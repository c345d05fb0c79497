"""The keys of a plan above its steps, as pydantic models; their messages come from plan/explain."""

import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from vramscope.anatomy.recipes import RECIPES
from vramscope.anatomy.source import SYNTHETIC
from vramscope.plan.fields import COUNT_SCHEMA, Count, DeviceName, ModelName, Name, PositiveSeconds, one_of, text
from vramscope.plan.kinds import Fields
from vramscope.plan.problems import expected_one_of
from vramscope.plan.schema import Download, OnFailure
from vramscope.units import parse_count, shown

VERSION = 1
FOREVER = "forever"
DEVICE = "cuda:0"

_DTYPES = ("auto", "float32", "float16", "bfloat16")
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", re.ASCII)
_SYNTHETIC = re.compile(r"synthetic:[A-Za-z0-9][\w.-]*", re.ASCII)
_REVISION = re.compile(r"[A-Za-z0-9][\w.+-]*(/[\w+-][\w.+-]*)*", re.ASCII)


def version(value: object) -> int:
    """The version of the plan's language."""
    if isinstance(value, int) and not isinstance(value, bool) and value == VERSION:
        return VERSION
    raise ValueError(f"expected {VERSION}, the only version of plans so far; got {shown(value)}")


def cycles(value: object) -> int | None:
    """How often the plan runs; None is forever."""
    if value == FOREVER:
        return None
    try:
        return parse_count(value)
    except ValueError:
        raise ValueError(f"expected {FOREVER} or a whole number of 1 or more, got {shown(value)}") from None


def source(value: object) -> str:
    """Where a model's files are."""
    name = text(value)
    if is_path(name):
        if not name.isprintable():
            raise ValueError(f"expected a printable path, got {shown(name)}")
        if name.startswith("~") and os.path.expanduser(name) == name:  # noqa: PTH111  a Path raises where this changes nothing
            raise ValueError(f"expected a directory, got {shown(name)}, and that user has no home directory here")
        return name
    if _SYNTHETIC.fullmatch(name):
        recipe = name.removeprefix(SYNTHETIC)
        if recipe not in RECIPES:
            raise ValueError(f"{SYNTHETIC} {expected_one_of(RECIPES, recipe)}")
        return name
    if _HUB_ID.fullmatch(name) and ".." not in name and "--" not in name:
        return name
    raise ValueError(
        "expected a hub id such as Qwen/Qwen2.5-0.5B-Instruct, a directory that starts with ./ ../ ~/ or /, "
        f"or synthetic:NAME; got {shown(name)}"
    )


def is_path(name: str) -> bool:
    """Whether a source is a directory rather than a name."""
    return name in {".", ".."} or name.startswith(("./", "../", "~", "/"))


def located(name: str, directory: Path) -> str:
    """A source with its path made absolute: `~` is the home directory, ./ and ../ start at the plan's `directory`."""
    if not is_path(name):
        return name
    # A Path drops the leading ./ of ./~, which is a directory of that name.
    return str(directory / (Path(name).expanduser() if name.startswith("~") else name))


def revision(value: object) -> str:
    """A branch, tag or commit of the hub; it becomes part of a path in the cache, so dots cannot climb."""
    name = text(value)
    if _REVISION.fullmatch(name) and ".." not in name:
        return name
    raise ValueError(f"expected a branch, a tag or a commit, got {shown(name)}")


_SOURCE_SCHEMA: dict[str, Any] = {
    "type": "string",
    "anyOf": [
        {"enum": [f"{SYNTHETIC}{name}" for name in RECIPES]},
        {"pattern": rf"^{_HUB_ID.pattern}$"},
        {"pattern": r"^(\.\.?$|\.\.?/|~|/)"},
    ],
}

Source = Annotated[str, BeforeValidator(source), WithJsonSchema(_SOURCE_SCHEMA)]
Revision = Annotated[
    str, BeforeValidator(revision), WithJsonSchema({"type": "string", "pattern": rf"^{_REVISION.pattern}$"})
]
Dtype = Annotated[Literal["auto", "float32", "float16", "bfloat16"], one_of(*_DTYPES)]
Version = Annotated[Literal[1], BeforeValidator(version)]
Cycles = Annotated[
    Count | None,
    BeforeValidator(cycles),
    WithJsonSchema({"anyOf": [{"const": FOREVER}, *COUNT_SCHEMA["anyOf"]]}),
]


class ModelFields(Fields):
    """A model: where it is, and how it is loaded."""

    source: Source = Field(
        description="A hub id such as Qwen/Qwen2.5-0.5B-Instruct, a directory that starts with ./ ../ ~/ or /, or "
        "synthetic:NAME."
    )
    revision: Revision = Field(default="main", description="A branch, a tag or a commit of the hub.")
    dtype: Dtype = Field(default="auto", description="What the parameters become; auto follows the checkpoint.")
    download: Annotated[Download, one_of(*Download)] = Field(
        default=Download.NEVER,
        description="Whether a model of the hub that is not on this machine is downloaded when a step needs it.",
    )


class PlanFields(Fields):
    """The plan as a whole; its steps are read one by one, by their kinds."""

    version: Version = Field(description="The version of the plan's language.")
    name: Name | None = Field(default=None, description="The plan's name in metrics; omitted: the file's.")
    models: dict[ModelName, ModelFields] = Field(default_factory=dict, description="The models, by a name of your own.")
    device: DeviceName = Field(default=DEVICE, description="Where `move` goes when it does not say.")
    repeat: Cycles = Field(default=1, description="How often the plan runs: forever, or a number of cycles.")
    every: PositiveSeconds | None = Field(
        default=None, description="The time from the start of a cycle to the start of the next; omitted: back to back."
    )
    on_failure: Annotated[OnFailure, one_of(*OnFailure)] = Field(
        default=OnFailure.NEXT_CYCLE, description="What a failed step means: the next cycle, or the end of the run."
    )
    steps: list[Any] = Field(description="What is done, in this order.")

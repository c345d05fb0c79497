"""A plan file to a checked Plan, or to all of its problems at once."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from vramscope.plan.explain import complaints
from vramscope.plan.fields import MAX_NAME, device_name
from vramscope.plan.head import DEVICE, ModelFields, PlanFields, cycles, located
from vramscope.plan.kinds import StepKind
from vramscope.plan.nodes import Document, read_document
from vramscope.plan.problems import PlanError, Problem
from vramscope.plan.residency import check_residency
from vramscope.plan.schema import ModelSpec, Plan, Repeat, Step
from vramscope.plan.sequence import StepReader, name_steps
from vramscope.plan.text import MAX_FILE_BYTES
from vramscope.units import shown

_EXTENSION = "x-"  # top-level keys that vramscope leaves alone: a place for anchors, as in Compose files

Value = TypeVar("Value")


def load_plan(path: Path, kinds: Mapping[str, StepKind]) -> Plan:
    """Read a plan file; raises PlanError with every problem, or with one for a file that cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise PlanError([Problem(path=str(path), message=f"cannot be read: {error.strerror or error}")]) from error
    return parse_plan(content, str(path), kinds)


def parse_plan(text: bytes, path: str, kinds: Mapping[str, StepKind]) -> Plan:
    """Read a plan from its bytes; `path` stands in messages, and relative model directories start beside it."""
    document = read_document(text, path)
    if not isinstance(document.value, dict):
        message = f"expected a mapping with version, models and steps; got {shown(document.value)}"
        raise PlanError([document.problem((), message), *document.problems])
    keys = {key: value for key, value in document.value.items() if not key.startswith(_EXTENSION)}
    problems = list(document.problems)
    head = _read_head(keys, document, problems)
    steps = _read_steps(keys, document, kinds, problems)
    if problems or head is None:
        raise PlanError(problems)
    return Plan(
        name=head.name or _name_of(path),
        models=_locate_models(head.models, document),
        device=head.device,
        repeat=head.repeat,
        every_seconds=head.every,
        on_failure=head.on_failure,
        steps=steps,
        path=path,
        sha256=hashlib.sha256(text).hexdigest(),
    )


def _read_head(keys: dict[str, Any], document: Document, problems: list[Problem]) -> PlanFields | None:
    """Everything but the steps themselves."""
    try:
        return PlanFields.model_validate(keys)
    except ValidationError as error:
        problems += [
            document.problem(found.path, found.message, key=found.about_key) for found in complaints(error, PlanFields)
        ]
        return None


def _locate_models(models: Mapping[str, ModelFields], document: Document) -> dict[str, ModelSpec]:
    """The models with their directories found from the plan's own."""
    directory = Path(document.path).absolute().parent
    specs: dict[str, ModelSpec] = {}
    for name, model in models.items():
        line, column = document.position(("models", name), key=True)
        located_fields = {**dict(model), "source": located(model.source, directory)}
        specs[name] = ModelSpec(name=name, line=line, column=column, **located_fields)
    return specs


def _read_steps(
    keys: dict[str, Any], document: Document, kinds: Mapping[str, StepKind], problems: list[Problem]
) -> tuple[Step | Repeat, ...]:
    """The steps, named and checked; where the head has problems, by what can be read of it."""
    items, models = keys.get("steps"), keys.get("models")
    if not isinstance(items, list):
        return ()  # which _read_head has told
    device = _valid_or(DEVICE, device_name, keys.get("device"))
    reader = StepReader(document, kinds, models if isinstance(models, dict) else {}, device)
    steps = name_steps(reader.read(items, ("steps",)))
    problems += reader.problems
    once: int | None = 1
    repeats = _valid_or(once, cycles, keys.get("repeat", once)) != once
    for finding in check_residency(steps, repeats=repeats):
        step, where = finding.step, f"{finding.step.where} {shown(finding.step.name)}"
        place = Problem(path=document.path, line=step.line, column=step.column, where=where, message=finding.message)
        problems.append(place)
    return steps


def _valid_or(default: Value, read: Callable[[object], Value], value: object) -> Value:
    """The value that `read` makes of `value`, or the default where it refuses."""
    try:
        return read(value)
    except ValueError:
        return default


def _name_of(path: str) -> str:
    """The plan's name when it has none of its own: the file's, made fit for a label."""
    stem = "".join(char if char.isprintable() else "_" for char in Path(path).stem)
    return stem[:MAX_NAME].strip() or "plan"

"""What pydantic found wrong, in the words of this house: expected …, got …, at the place where it stands."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from vramscope.plan.nodes import Path
from vramscope.plan.problems import unknown_key
from vramscope.units import shown

_WANTED = {
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dict_type": "a mapping",
    "list_type": "a list",
    "string_type": "text",
    "int_type": "a whole number",
    "bool_type": "true or false",
}


@dataclass(frozen=True, kw_only=True)
class Complaint:
    """One thing wrong with fields: where (below the fields), whether it is about the key there, and what."""

    path: Path
    message: str
    about_key: bool = False


def complaints(error: ValidationError, model: type[BaseModel]) -> Iterator[Complaint]:
    """Every complaint in `error`, which validating `model` raised."""
    for detail in error.errors(include_url=False):
        path: Path = detail["loc"]
        if detail["type"] == "extra_forbidden":
            known = _known_keys(model, path[:-1])
            yield Complaint(path=path, message=unknown_key(str(path[-1]), known), about_key=True)
        elif detail["type"] == "missing":
            yield Complaint(path=path[:-1], message=f'missing key "{path[-1]}"')
        elif detail["type"] == "value_error":
            about_key = path[-1:] == ("[key]",)
            path = path[:-1] if about_key else path
            yield Complaint(path=path, message=str(detail["ctx"]["error"]), about_key=about_key)
        else:
            wanted = _WANTED.get(detail["type"])
            message = f"expected {wanted}" if wanted else detail["msg"]
            yield Complaint(path=path, message=f"{message}, got {shown(detail['input'])}")


def _known_keys(model: type[BaseModel], path: Path) -> list[str]:
    """The keys that may stand in the mapping at `path` below `model`."""
    annotation: Any = model
    for part in path:
        owner = _model_in(annotation)
        if owner is not None and part in owner.model_fields:
            annotation = owner.model_fields[str(part)].annotation
        else:
            annotation = get_args(annotation)[-1] if get_args(annotation) else None  # what a list or a dict holds
    owner = _model_in(annotation)
    return list(owner.model_fields) if owner is not None else []


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """The model that an annotation is, or has as a part of a union."""
    for candidate in (annotation, *get_args(annotation)):
        if isinstance(candidate, type) and issubclass(candidate, BaseModel):
            return candidate
    return None

"""JSON Schema (draft 2020-12) of a plan, for editors: derived from the fields that the parser reads.

It says as much of the language as a schema can, and no more than the parser: what passes the parser passes here. What
depends on other parts of the plan (names of models, where a model is) only `vramscope check` knows.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from pydantic.json_schema import JsonSchemaMode, models_json_schema

from vramscope.plan.head import PlanFields
from vramscope.plan.kinds import Fields, StepKind
from vramscope.plan.sequence import BLOCK, RepeatFields, StepOptions

DIALECT = "https://json-schema.org/draft/2020-12/schema"
EXTENSION = "^x-"

Schema = dict[str, Any]

_REF = "#/$defs/{model}"
_MODE: JsonSchemaMode = "validation"
_STEP = {"$ref": _REF.format(model="Step")}
_BLOCK_TEXT = "Runs the steps inside `times` times, one after the other."


def plan_schema(kinds: Mapping[str, StepKind], documentation: Mapping[str, str]) -> Schema:
    """The schema of a whole plan. `documentation` has a text for each kind, which editors show beside it."""
    definitions = _definitions([PlanFields, StepOptions, RepeatFields, *(kind.fields for kind in kinds.values())])
    plan, options, block = (definitions.pop(model.__name__) for model in (PlanFields, StepOptions, RepeatFields))
    steps = {"type": "array", "items": _STEP, "minItems": 1}
    plan["properties"]["steps"] |= steps
    block["properties"]["steps"] |= steps
    values = {name: _value(kind) | {"description": documentation[name]} for name, kind in sorted(kinds.items())}
    bare = [name for name, kind in sorted(kinds.items()) if not _required(kind)]
    blocks = _mapping({BLOCK: block | {"description": _BLOCK_TEXT}}, {})
    definitions["Step"] = {"anyOf": [_mapping(values, options["properties"]), blocks, {"enum": bare}]}
    return {
        "$schema": DIALECT,
        "title": "vramscope plan",
        **plan,
        "description": "A plan of model steps for vramscope. What a schema cannot say, `vramscope check` finds.",
        "patternProperties": {EXTENSION: {"description": "Left alone: a place for anchors."}},
        "$defs": dict(sorted(definitions.items())),
    }


def _definitions(models: Iterable[type[Fields]]) -> dict[str, Schema]:
    """Each model's schema by its name, and those of the models inside."""
    _, document = models_json_schema([(model, _MODE) for model in models], ref_template=_REF)
    return {name: _tidied(schema) for name, schema in document["$defs"].items()}


def _tidied(schema: Any) -> Any:
    """Without the titles that pydantic makes of names, and with the keys of a mapping checked by `propertyNames`."""
    if isinstance(schema, list):
        return [_tidied(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    tidied = {key: _tidied(value) for key, value in schema.items() if key != "title" or not isinstance(value, str)}
    if "patternProperties" in tidied:
        ((pattern, value),) = tidied.pop("patternProperties").items()
        tidied["propertyNames"] = tidied.get("propertyNames", {}) | {"pattern": pattern}
        tidied["additionalProperties"] = value
    return tidied


def _required(kind: StepKind) -> list[str]:
    return [key for key, field in kind.fields.model_fields.items() if field.is_required()]


def _value(kind: StepKind) -> Schema:
    """What may stand behind the kind's name: its fields, the one field that a bare value fills, or nothing."""
    fields: Schema = {"$ref": _REF.format(model=kind.fields.__name__)}
    choices: list[Schema] = [fields]
    if kind.scalar is not None:
        choices.append({"$ref": f"{fields['$ref']}/properties/{kind.scalar}"})
    if not _required(kind):
        choices.append({"type": "null"})
    return {"anyOf": choices}


def _mapping(values: Mapping[str, Schema], options: Mapping[str, Schema]) -> Schema:
    """A step written as a mapping: exactly one of the kinds, and what every step may carry."""
    return {
        "type": "object",
        "properties": {**values, **options},
        "additionalProperties": False,
        "oneOf": [{"required": [name]} for name in values],
    }

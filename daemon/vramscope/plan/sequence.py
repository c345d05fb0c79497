"""The steps of a plan: each mapping (or bare word) in the list to a Step of its kind, or to the problems with it."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from vramscope.plan.explain import complaints
from vramscope.plan.fields import Count, PositiveSeconds, StepName
from vramscope.plan.kinds import Action, Effect, Fields, StepKind
from vramscope.plan.nodes import Document, Path
from vramscope.plan.problems import Problem, did_you_mean, expected_one_of, nearest, path_text, unknown_key
from vramscope.plan.residency import GAP
from vramscope.plan.schema import Repeat, Step, named_steps
from vramscope.units import shown

BLOCK = "repeat"

_PART_SHOWN = 32  # a longer part is not named in a step's name
_SAID = re.compile(r"(\S+)\s+to\s+(\S+)")

Parsed = TypeVar("Parsed", bound=Fields)


class StepOptions(Fields):
    """The keys that every step may carry beside its kind."""

    name: StepName | None = Field(
        default=None, description="The step's name in messages and metrics; no two have the same."
    )
    timeout: PositiveSeconds | None = Field(
        default=None, description="After this time the step is cancelled, and failed."
    )


class RepeatFields(Fields):
    """What a repeat block holds."""

    times: Count = Field(description="How often.")
    steps: list[Any] = Field(description="What is repeated.")


_OPTIONS = tuple(StepOptions.model_fields)


@dataclass
class StepReader:
    """Reads the steps of one document; what is wrong goes to `problems`, and a gap stands in for a broken step."""

    document: Document
    kinds: Mapping[str, StepKind]
    models: Collection[str]
    device: str
    problems: list[Problem] = field(default_factory=list)
    _named: dict[str, Path] = field(default_factory=dict)

    def read(self, items: list[Any], at: Path) -> tuple[Step | Repeat, ...]:
        """The steps of the list at `at`; a step that the plan does not name has an empty name (see `name_steps`)."""
        if not items:
            self._add(at, "expected at least one step, got an empty list")
        return tuple(self._read_item(item, (*at, index)) for index, item in enumerate(items))

    def _read_item(self, item: Any, at: Path) -> Step | Repeat:
        """One item of a list of steps; a bare word is a kind without fields."""
        if isinstance(item, str):
            if (mapping := self._without_colon(item)) is not None:
                self._add(at, f"expected {mapping} (with a colon after the kind), got {shown(item)}")
                return self._gap(at)
            item = {item: None}
        if not isinstance(item, dict):
            self._add(at, f"expected a step, got {shown(item)}")
            return self._gap(at)
        name = item["name"] if isinstance(item.get("name"), str) else ""
        kind = self._kind_key(item, at, name)
        if kind == BLOCK:
            return self._read_block(item, at, name)
        options = self._options(item, at, name)
        if kind is None:
            return self._gap(at)
        return self._read_step(kind, item[kind], at, options)

    def _without_colon(self, item: str) -> str | None:
        """How `load qwen`, which is one word to YAML, is written; None where it does not begin with such a kind."""
        word, _, value = item.partition(" ")
        kind = self.kinds.get(word)
        if not value or kind is None or kind.scalar is None:
            return None
        return _spelt_out(kind, value) or f"{word}: {value}"

    def _kind_key(self, item: dict[str, Any], at: Path, name: str) -> str | None:
        """The one key of a step that is a kind."""
        known = sorted([*self.kinds, BLOCK])
        found = [key for key in item if key in known]
        for key in item:
            if key in known or key in _OPTIONS:
                continue
            if found or nearest(key, [*known, *_OPTIONS]) in _OPTIONS:
                self._add((*at, key), unknown_key(key, _OPTIONS), name=name, key=True)
            else:
                self._add((*at, key), expected_one_of(known, key), name=name, key=True)
        if len(found) > 1:
            message = f"expected one kind in a step, got {' and '.join(found)} (each needs a list item of its own)"
            self._add((*at, found[1]), message, name=name, key=True)
        if not found and not set(item) - set(_OPTIONS):
            self._add(at, f"expected one of {', '.join(known)}; got no kind", name=name)
        return found[0] if len(found) == 1 else None

    def _options(self, item: dict[str, Any], at: Path, name: str) -> StepOptions:
        """Name and timeout of a step; where one of them is wrong, only the name that messages show."""
        given = {key: item[key] for key in _OPTIONS if key in item}
        options = self._validate(StepOptions, given, at, name)
        if options is None:
            return StepOptions.model_construct(name=name or None)
        if options.name is not None:
            at_name = (*at, "name")
            first = self._named.setdefault(options.name, at_name)
            if first != at_name:
                line = self.document.position(first).line
                message = f"expected a name that no other step has, got {shown(name)} again (first on line {line})"
                self._add(at_name, message, name=name)
        return options

    def _read_step(self, kind_name: str, value: Any, at: Path, options: StepOptions) -> Step:
        """A step whose kind is known."""
        kind, at_kind, name = self.kinds[kind_name], (*at, kind_name), options.name or ""
        required = [key for key, info in kind.fields.model_fields.items() if info.is_required()]
        if value is None and required:
            self._add(at_kind, f"expected {_pattern(kind, required)}, got nothing", name=name)
            return self._gap(at)
        if (spelt := _spelt_out(kind, value)) is not None:
            self._add(at_kind, f"expected {spelt}, got {shown(value)}", name=name)
            return self._gap(at)
        if isinstance(value, dict) or value is None:
            given = value or {}
        elif kind.scalar is not None:
            given = {kind.scalar: value}
        else:
            keys = ", ".join(kind.fields.model_fields)
            wanted = f"a mapping with {keys}" if keys else f"only the word {kind_name}"
            self._add(at_kind, f"expected {wanted}; got {shown(value)}", name=name)
            return self._gap(at)
        fields = self._validate(kind.fields, given, at_kind, name)
        if fields is None:
            return self._gap(at)
        effect = kind.effect(fields, self.device)
        if effect.model and effect.model not in self.models:
            self._add((*at_kind, "model"), self._unknown_model(effect.model), name=name)
            return self._gap(at)
        return self._step(at, kind_name, fields, effect, options)

    def _unknown_model(self, model: str) -> str:
        names = list(self.models)
        wanted = f"expected one of the plan's models ({', '.join(names[:10])}{', …' if len(names) > 10 else ''})"  # noqa: PLR2004
        if not names:
            wanted = "expected a model of the plan, which has none under models:"
        return f"{wanted}, got {shown(model)}{did_you_mean(model, names)}"

    def _read_block(self, item: dict[str, Any], at: Path, name: str) -> Repeat:
        """A repeat block with the steps inside."""
        for key in _OPTIONS:
            if key in item:
                self._add(
                    (*at, key), f"expected no {key} on a repeat block: give it to a step inside", name=name, key=True
                )
        value, at_block = item[BLOCK], (*at, BLOCK)
        if not isinstance(value, dict):
            self._add(at_block, f"expected a mapping with times and steps, got {shown(value)}", name=name)
            return Repeat(times=1, steps=(self._gap(at),))
        fields = self._validate(RepeatFields, value, at_block, name)
        items = value.get("steps")
        steps = self.read(items, (*at_block, "steps")) if isinstance(items, list) else (self._gap(at),)
        return Repeat(times=fields.times if fields else 1, steps=steps)

    def _step(self, at: Path, kind: str, fields: Fields, effect: Effect, options: StepOptions) -> Step:
        line, column = self.document.position(at)
        return Step(
            name=options.name or "",
            kind=kind,
            fields=fields,
            effect=effect,
            where=path_text(at),
            line=line,
            column=column,
            timeout_seconds=options.timeout,
        )

    def _gap(self, at: Path) -> Step:
        """What stands for a step that could not be read; no plan that has one is ever returned."""
        return self._step(at, GAP, Fields(), Effect(), StepOptions())

    def _validate(self, model: type[Parsed], given: dict[str, Any], at: Path, name: str) -> Parsed | None:
        """The fields, or None and their problems."""
        try:
            return model.model_validate(given)
        except ValidationError as error:
            for complaint in complaints(error, model):
                self._add((*at, *complaint.path), complaint.message, name=name, key=complaint.about_key)
            return None

    def _add(self, at: Path, message: str, *, name: str = "", key: bool = False) -> None:
        self.problems.append(self.document.problem(at, message, name=name, key=key))


def _pattern(kind: StepKind, required: list[str]) -> str:
    """What the fields that a kind cannot do without look like: `unload: MODEL`."""
    if required == [kind.scalar]:
        return f"{kind.name}: {required[0].upper()}"
    return f"{kind.name}: {{{', '.join(f'{key}: {key.upper()}' for key in required)}}}"


def _spelt_out(kind: StepKind, value: object) -> str | None:
    """How `tiny to cuda:0`, which people say, is written; None for anything else."""
    match = _SAID.fullmatch(value) if isinstance(value, str) else None
    if match is None or not {"model", "to"} <= set(kind.fields.model_fields):
        return None
    return f"{kind.name}: {{model: {match[1]}, to: {match[2]}}}"


def name_steps(steps: tuple[Step | Repeat, ...]) -> tuple[Step | Repeat, ...]:
    """The steps with a name for each: what it does, and #2, #3 … where that is taken."""
    taken = {step.name for step in named_steps(steps)}
    counts: dict[str, int] = {}

    def named(step: Step | Repeat) -> Step | Repeat:
        if isinstance(step, Repeat):
            return replace(step, steps=tuple(named(inner) for inner in step.steps))
        if step.name:
            return step
        base = name = default_name(step)
        while name in taken:
            counts[base] = counts.get(base, 1) + 1
            name = f"{base} #{counts[base]}"
        taken.add(name)
        return replace(step, name=name)

    return tuple(named(step) for step in steps)


def default_name(step: Step) -> str:
    """What a step does, in a few words: `load qwen`, `move layers 0-11 of qwen to cuda:0`, `wait`."""
    effect, what, target = step.effect, step.effect.model, ""
    if effect.action is Action.MOVE:
        target = f"to {effect.to}"
        part = "" if effect.part is None else str(effect.part)
        if part:
            what = f"{part if len(part) <= _PART_SHOWN else 'part'} of {effect.model}"
    return " ".join(word for word in (step.kind, what, target) if word)

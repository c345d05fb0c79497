"""The parsed plan: immutable, complete, with the line and column of everything that an error may want to name."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from vramscope.plan.kinds import Action, Effect, Fields


class OnFailure(StrEnum):
    """What a failed step means for the run."""

    NEXT_CYCLE = "next_cycle"
    STOP = "stop"


class Download(StrEnum):
    """Whether a model that is not on this machine may be fetched."""

    NEVER = "never"
    IF_MISSING = "if-missing"


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model as the plan names it. `dtype` is auto, float32, float16 or bfloat16; auto follows the checkpoint."""

    name: str
    source: str
    revision: str = "main"
    dtype: str = "auto"
    download: Download = Download.NEVER
    line: int = 0
    column: int = 0


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step. `name` is unique in the plan; `where` is its path, such as steps[3] or steps[2].repeat.steps[0]."""

    name: str
    kind: str
    fields: Fields
    effect: Effect
    where: str
    line: int
    column: int
    timeout_seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """A block that runs `times` times; the steps inside are walked again, never copied."""

    times: int
    steps: tuple["Step | Repeat", ...]


def walk(steps: tuple[Step | Repeat, ...]) -> Iterator[Step]:
    """Every step in the order in which it runs, blocks repeated, lazily."""
    for step in steps:
        if isinstance(step, Step):
            yield step
        else:
            for _ in range(step.times):
                yield from walk(step.steps)


def named_steps(steps: tuple[Step | Repeat, ...]) -> Iterator[Step]:
    """Every step once, blocks not repeated."""
    for step in steps:
        if isinstance(step, Step):
            yield step
        else:
            yield from named_steps(step.steps)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan that passed every check. `repeat` None is forever, `every_seconds` None is back to back."""

    name: str
    models: dict[str, ModelSpec]
    device: str
    repeat: int | None
    every_seconds: float | None
    on_failure: OnFailure
    steps: tuple[Step | Repeat, ...]
    path: str
    sha256: str

    @property
    def first_loaded(self) -> ModelSpec | None:
        """The model that the plan loads first."""
        loads = (step.effect.model for step in named_steps(self.steps) if step.effect.action is Action.LOAD)
        return self.models.get(next(loads, ""))

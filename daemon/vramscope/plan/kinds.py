"""What the plan needs to know about a step kind: its name, its fields, and how it changes where a model lives."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict

from vramscope.anatomy.parts import Part


class Fields(BaseModel):
    """Base of the fields of a step kind. Unknown keys are errors, and a parsed step never changes."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class Action(Enum):
    """How a step changes the residency of a model; the static check and the forecast know these and no step kinds."""

    NOTHING = "nothing"
    LOAD = "load"
    MOVE = "move"
    UNLOAD = "unload"
    RELEASE = "release"
    RESTART = "restart"


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What one step does. `model` is empty where it touches none; `to` is the device it ends on, for LOAD and MOVE.

    With a `part` only that ends there: of a load the rest goes to host memory, of a move it stays where it is.
    """

    action: Action = Action.NOTHING
    model: str = ""
    to: str = ""
    part: Part | None = None


class StepKind(Protocol):
    """The plan's view of a step kind (the frame in steps/ adds how to run it).

    `scalar` names the field that a bare value fills (`load: qwen` is `load: {model: qwen}`); None where a bare value
    makes no sense. `effect` gets the parsed fields and the plan's default device.
    """

    @property
    def name(self) -> str: ...
    @property
    def fields(self) -> type[Fields]: ...
    @property
    def scalar(self) -> str | None: ...
    @property
    def effect(self) -> Callable[[Any, str], Effect]: ...

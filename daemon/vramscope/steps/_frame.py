"""The frame of a step kind: what a kind defines, and the only things that its code may do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from vramscope.anatomy.parts import Part
from vramscope.events import Fact
from vramscope.memory.snapshot import MemorySampled
from vramscope.plan.kinds import Effect, Fields

Facts = Mapping[str, Fact]


class StepContext(Protocol):
    """What a step may use. Each operation raises StepCancelledError soon after the step is cancelled.

    `default_device` is the plan's device. Operations raise the errors of errors.py; an out-of-memory leaves every
    model where it was.
    """

    @property
    def default_device(self) -> str: ...
    def check_cancelled(self) -> None: ...
    def sleep(self, seconds: float) -> None: ...
    def fetch(self, model: str) -> Facts: ...
    def load(
        self, model: str, device: str, part: Part | None = None, *, force: bool = False, verify: bool = False
    ) -> Facts: ...
    def move(self, model: str, device: str, part: Part | None = None) -> Facts: ...
    def unload(self, model: str) -> Facts: ...
    def tokenize(self, model: str, text: str) -> Facts: ...
    def release_cache(self) -> Facts: ...
    def prepare_restart(self) -> Facts: ...
    def memory(self) -> MemorySampled: ...


def no_effect(_fields: Any, _device: str) -> Effect:
    """For kinds that change nothing about where a model lives."""
    return Effect()


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A step kind: its name in the plan, its fields, how it runs, and an example that must parse.

    `run` returns facts: small values by name that go into the event, the table and the page.
    """

    name: str
    fields: type[Fields]
    run: Callable[[StepContext, Any], Facts]
    example: str
    scalar: str | None = None
    effect: Callable[[Any, str], Effect] = no_effect

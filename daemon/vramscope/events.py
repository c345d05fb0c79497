"""What happened, as values. Metrics, log, table and page subscribe; nobody else is told anything.

Times are seconds since the epoch (`at`), durations are seconds by the monotonic clock. An event that carries data of
a room is defined in that room (for example `memory.snapshot.MemorySampled`); the base and the run's own are here.
"""

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

logger = logging.getLogger(__name__)

Fact = str | int | float | None


@dataclass(frozen=True, kw_only=True)
class Event:
    """Anything that happened, at a time."""

    at: float


class Outcome(StrEnum):
    """How a step or a cycle ended."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class PlanStarted(Event):
    """A plan begins to run. `sha256` is that of the plan file's bytes; `models` and `steps` are the names in it."""

    plan: str
    sha256: str
    path: str
    cycles: int | None
    models: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PlanEnded(Event):
    """The plan has no cycle left, or stopped at a failure."""

    outcome: Outcome


@dataclass(frozen=True, kw_only=True)
class CycleStarted(Event):
    """One pass through the plan's steps begins; cycles count from 1."""

    cycle: int


@dataclass(frozen=True, kw_only=True)
class CycleEnded(Event):
    """One pass through the plan's steps is over; it took `seconds` from its first step on, once there was a worker."""

    cycle: int
    outcome: Outcome
    seconds: float


@dataclass(frozen=True, kw_only=True)
class StepEvent(Event):
    """Something about one run of one step. `step` is its name in the plan, `model` is empty where it has none."""

    step: str
    kind: str
    model: str


@dataclass(frozen=True, kw_only=True)
class StepStarted(StepEvent):
    """The worker was told to run a step. While one runs that changes memory, no two looks at it agree."""

    cycle: int
    line: int
    changes_memory: bool = False


@dataclass(frozen=True, kw_only=True)
class StepEnded(StepEvent):
    """A step is over. `error` is empty unless it failed; `facts` are what the step found out (tokens, bytes …)."""

    cycle: int
    outcome: Outcome
    seconds: float
    error: str = ""
    facts: Mapping[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class PhaseStarted(StepEvent):
    """A part of a step begins. A step is in one phase at a time, so the phases of a step never overlap."""

    phase: str


@dataclass(frozen=True, kw_only=True)
class PhaseEnded(StepEvent):
    """A part of a step is over: how long it took, and how many bytes it handled (None where bytes mean nothing)."""

    phase: str
    seconds: float
    nbytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class StepProgressed(StepEvent):
    """How far the running step's current phase is, in bytes."""

    phase: str
    bytes_done: int
    bytes_total: int


@dataclass(frozen=True, kw_only=True)
class WorkerStarted(Event):
    """A worker process was spawned; it is not ready yet."""

    pid: int


@dataclass(frozen=True, kw_only=True)
class WorkerExited(Event):
    """A worker process is gone. `reason` is a bounded word for metrics, `detail` a sentence for people."""

    pid: int
    reason: str
    detail: str
    expected: bool


@dataclass(frozen=True, kw_only=True)
class JournalSampled(Event):
    """How the journal is. `reason` says why nothing can be written now, and is empty while all is well.

    `written` and `dropped` count the events since the daemon started that are in the journal, and that never will be.
    """

    reason: str
    written: int
    dropped: int


@dataclass(frozen=True, kw_only=True)
class CycleAwaited(Event):
    """No cycle runs; the next one starts at `starts_at`, in seconds since the epoch, unless a new plan comes."""

    starts_at: float


@dataclass(frozen=True, kw_only=True)
class PlanReloaded(Event):
    """The plan file was read again and is good. `is_new` says whether it differs from the plan that runs."""

    sha256: str
    is_new: bool


@dataclass(frozen=True, kw_only=True)
class PlanReloadFailed(Event):
    """The plan file was read again and cannot be used; `problem` has a line for each thing wrong with it."""

    problem: str


@dataclass(frozen=True, kw_only=True)
class WebConfigRead(Event):
    """The web configuration was read. With a `problem` the one before stays in force."""

    problem: str


def event_name(event: Event | type[Event]) -> str:
    """Return the event's name in log and journal, such as step_ended."""
    kind = event if isinstance(event, type) else type(event)
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


class Bus:
    """Hands each event to every subscriber, in the order of subscription, in the thread that publishes."""

    def __init__(self) -> None:
        self._subscribers: list[Callable[[Event], None]] = []

    def subscribe(self, subscriber: Callable[[Event], None]) -> None:
        self._subscribers.append(subscriber)

    def publish(self, event: Event) -> None:
        for subscriber in self._subscribers:
            try:
                subscriber(event)
            except Exception:  # a broken table or log must not stop the run; this is the border of one subscriber
                logger.exception("subscriber failed", extra={"event": type(event).__name__})

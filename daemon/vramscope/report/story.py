"""What a journal tells of one run, folded event by event into as much as a report shows, however long the run was."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import singledispatchmethod

from vramscope.events import (
    CycleEnded,
    CycleStarted,
    Event,
    Outcome,
    PhaseEnded,
    PlanEnded,
    StepEnded,
    StepStarted,
    WorkerExited,
)
from vramscope.journal.lines import JournalClosed, JournalGap, JournalOpened
from vramscope.memory.ledger import FREE
from vramscope.memory.residue import ResidueMeasured
from vramscope.memory.snapshot import DriverSampled, MemorySampled, WorkerReady, device_order
from vramscope.report.results import ResultsBuilder
from vramscope.report.thinned import Spread, Thinned
from vramscope.supervisor.forecaster import ForecastCompared
from vramscope.supervisor.store import Store

POINTS_KEPT = 1000
RECENT_CYCLES = 3
RECENT_KEPT = 3000
ROWS_KEPT = 200
STEPS_KEPT = 500
SERIES_KEPT = 100


@dataclass(frozen=True, kw_only=True)
class Point:
    """Who held which bytes of a device at a moment; without owners nobody knows."""

    at: float
    owners: Mapping[str, int]

    @property
    def used_bytes(self) -> int:
        return sum(nbytes for owner, nbytes in self.owners.items() if owner != FREE)


@dataclass(frozen=True, kw_only=True)
class Span:
    """One run of a step; `end` is None while it runs."""

    step: str
    kind: str
    start: float
    end: float | None
    outcome: Outcome | None


@dataclass
class StepTimes:
    """All runs of one step of the plan that succeeded, and the phases in them. `nbytes` is the last run's."""

    step: str
    kind: str
    model: str
    runs: Counter[str] = field(default_factory=Counter)
    seconds: Spread = field(default_factory=Spread)
    phases: dict[str, Spread] = field(default_factory=dict)
    nbytes: dict[str, int | None] = field(default_factory=dict)


@dataclass
class Foreseen:
    """Forecast and measurement after a step on one device: of its last run, and how far off it ever was."""

    step: str
    device: str
    forecast: dict[str, int] = field(default_factory=dict)
    measured: dict[str, int] = field(default_factory=dict)
    compared: int = 0
    largest_error_bytes: int = 0
    cause: str = ""


@dataclass
class Peak:
    """The most that was seen of each quantity on a device, and in which step that was."""

    nbytes: dict[str, int] = field(default_factory=dict)
    step: dict[str, str] = field(default_factory=dict)

    def note(self, quantity: str, nbytes: int, step: str) -> None:
        if nbytes > self.nbytes.get(quantity, 0):
            self.nbytes[quantity], self.step[quantity] = nbytes, step


class RunStory:
    """One run. `number` is its place in the journal, from 1."""

    def __init__(self, number: int, began: float) -> None:
        self.number = number
        self.began = self.last_at = began
        self.store = Store(began)
        self.results = ResultsBuilder(ROWS_KEPT)
        self.versions: dict[str, str] = {}
        self.is_closed = False
        self.lost_events = self.gaps = 0
        self.cycles_started = 0
        self.cycles: Counter[str] = Counter()
        self.cycle_seconds = Spread()
        self.steps: dict[str, StepTimes] = {}
        self.spans: deque[Span] = deque(maxlen=RECENT_KEPT)
        self.foreseen: dict[tuple[str, str], Foreseen] = {}
        self.residues: dict[tuple[str, str], Thinned[tuple[int, int]]] = {}
        self.points: dict[str, Thinned[Point]] = {}
        self.recent: dict[str, deque[Point]] = {}
        self.peaks: dict[str, Peak] = {}
        self.restarts: Counter[str] = Counter()
        self._recent_starts: deque[float] = deque(maxlen=RECENT_CYCLES)
        self._plan_ended_at: float | None = None
        self._left: dict[tuple[str, str], int] = {}
        self._phases: dict[str, tuple[float, int | None]] = {}

    def apply(self, event: Event) -> None:
        self.store.apply(event)
        self.results.on_event(event)
        self.last_at = max(self.last_at, event.at)
        self._fold(event)

    @property
    def active_until(self) -> float:
        """The end of the plan, or what is known last; what a daemon samples after its plan is of no interest."""
        return self.last_at if self._plan_ended_at is None else self._plan_ended_at

    @property
    def recent_began(self) -> float:
        """When the oldest of the last few cycles began."""
        return self._recent_starts[0] if self._recent_starts else self.began

    @property
    def devices(self) -> list[str]:
        return sorted({*self.peaks, *self.points}, key=device_order)

    @singledispatchmethod
    def _fold(self, _event: Event) -> None:
        """Pass over what no report shows."""

    @_fold.register
    def _(self, event: JournalOpened) -> None:
        self.versions |= event.versions

    @_fold.register
    def _(self, _event: JournalClosed) -> None:
        self.is_closed = True

    @_fold.register
    def _(self, event: JournalGap) -> None:
        self.gaps += 1
        self.lost_events += event.dropped

    @_fold.register
    def _(self, event: WorkerReady) -> None:
        self.versions |= {name: text for name, text in event.versions.items() if name != "python"}

    @_fold.register
    def _(self, event: WorkerExited) -> None:
        if not event.expected:
            self.restarts[event.reason] += 1
        for device in self.points:
            self._note_point(Point(at=event.at, owners={}), device)

    @_fold.register
    def _(self, event: PlanEnded) -> None:
        self._plan_ended_at = event.at

    @_fold.register
    def _(self, event: CycleStarted) -> None:
        self._plan_ended_at = None
        self.cycles_started += 1
        self._recent_starts.append(event.at)
        for points in self.recent.values():
            while len(points) > 1 and points[1].at < self.recent_began:
                points.popleft()
        while self.spans and self.spans[0].start < self.recent_began:
            self.spans.popleft()

    @_fold.register
    def _(self, event: CycleEnded) -> None:
        self.cycles[event.outcome.value] += 1
        if event.outcome is Outcome.SUCCEEDED:
            self.cycle_seconds.add(event.seconds)
        for key, nbytes in self._left.items():
            if key in self.residues or len(self.residues) < SERIES_KEPT:
                self.residues.setdefault(key, Thinned(POINTS_KEPT, _larger)).add((event.cycle, nbytes))
        self._left.clear()

    @_fold.register
    def _(self, event: StepStarted) -> None:
        self._phases = {}
        self.spans.append(Span(step=event.step, kind=event.kind, start=event.at, end=None, outcome=None))

    @_fold.register
    def _(self, event: PhaseEnded) -> None:
        before = self._phases.get(event.phase, (0.0, None))[0]
        self._phases[event.phase] = before + event.seconds, event.nbytes

    @_fold.register
    def _(self, event: StepEnded) -> None:
        if self.spans and self.spans[-1].end is None:
            last = self.spans.pop()
            ended = Span(step=last.step, kind=last.kind, start=last.start, end=event.at, outcome=event.outcome)
            self.spans.append(ended)
        times = self.steps.get(event.step)
        if times is None and len(self.steps) < STEPS_KEPT:
            times = self.steps[event.step] = StepTimes(event.step, event.kind, event.model)
        if times is None:
            return
        times.runs[event.outcome.value] += 1
        if event.outcome is Outcome.SUCCEEDED:
            times.seconds.add(event.seconds)
            for phase, (seconds, nbytes) in self._phases.items():
                times.phases.setdefault(phase, Spread()).add(seconds)
                times.nbytes[phase] = nbytes

    @_fold.register
    def _(self, event: ForecastCompared) -> None:
        state = self.store.state
        for held in state.devices:
            levels = state.forecast.get(held.device)
            errors = {each: nbytes for (device, each), nbytes in event.error_bytes.items() if device == held.device}
            key = event.step, held.device
            if levels is None or not errors or (key not in self.foreseen and len(self.foreseen) >= STEPS_KEPT):
                continue
            seen = self.foreseen.setdefault(key, Foreseen(event.step, held.device))
            seen.compared += 1
            seen.forecast = {"allocated": levels.allocated_bytes, "reserved": levels.reserved_bytes}
            seen.measured = {each: seen.forecast.get(each, 0) + nbytes for each, nbytes in errors.items()}
            seen.largest_error_bytes = max(seen.largest_error_bytes, *(abs(each) for each in errors.values()))
            seen.cause = event.cause or seen.cause

    @_fold.register
    def _(self, event: ResidueMeasured) -> None:
        for residue in event.residues:
            for place in residue.places:
                self._left[residue.model, place.where] = place.nbytes  # a release tells anew what the unload told

    @_fold.register
    def _(self, event: MemorySampled) -> None:
        step = self.spans[-1].step if self.spans else ""
        for held in event.devices:
            peak = self.peaks.setdefault(held.device, Peak())
            peak.note("allocated", max(held.allocator.allocated_bytes, held.allocator.allocated_peak_bytes), step)
            peak.note("reserved", max(held.allocator.reserved_bytes, held.allocator.reserved_peak_bytes), step)
        self._note_accounts(event)

    @_fold.register
    def _(self, event: DriverSampled) -> None:
        if event.driver_version:
            self.versions["driver"] = event.driver_version
        self._note_accounts(event)

    def _note_accounts(self, event: Event) -> None:
        """Take over who holds what, of each device of which that is known now."""
        step = self.spans[-1].step if self.spans else ""
        for device, account in self.store.state.accounts.items():
            owners = account.ledger()
            if owners is not None:
                point = Point(at=event.at, owners=owners)
                self.peaks.setdefault(device, Peak()).note("used", point.used_bytes, step)
                self._note_point(point, device)

    def _note_point(self, point: Point, device: str) -> None:
        if device not in self.points:
            self.points[device] = Thinned(POINTS_KEPT, _fuller)
            self.recent[device] = deque(maxlen=RECENT_KEPT)
        self.points[device].add(point)
        recent = self.recent[device]
        if len(recent) > 1 and recent[-1].owners == recent[-2].owners == point.owners:
            recent.pop()  # in the middle of a level nothing is to be seen
        recent.append(point)


def _fuller(first: Point, second: Point) -> Point:
    return first if first.used_bytes > second.used_bytes else second


def _larger(first: tuple[int, int], second: tuple[int, int]) -> tuple[int, int]:
    return max(first, second, key=lambda pair: pair[1])

"""The run as one immutable value. One writer (`Store`) folds events into it; page and metrics read the latest."""

from dataclasses import dataclass, field, replace
from functools import singledispatchmethod

from vramscope.events import (
    CycleEnded,
    CycleStarted,
    Event,
    Fact,
    Outcome,
    PhaseEnded,
    PhaseStarted,
    PlanEnded,
    PlanStarted,
    StepEnded,
    StepProgressed,
    StepStarted,
    WorkerExited,
    WorkerStarted,
)
from vramscope.forecast.predict import DeviceLevels
from vramscope.memory.snapshot import (
    DeviceFacts,
    DeviceSnapshot,
    DriverMemory,
    DriverSampled,
    MemorySampled,
    ModelSnapshot,
    ResidentMemory,
    ResidentSampled,
    WorkerReady,
)
from vramscope.supervisor.forecaster import ForecastCompared, ForecastLost, ForecastMade

FAULTS_KEPT = 20


@dataclass(frozen=True, kw_only=True)
class RunningStep:
    """The step that runs now. `bytes_total` is None while its phase does not count bytes."""

    step: str
    kind: str
    model: str
    line: int
    started_at: float
    phase: str = ""
    bytes_done: int = 0
    bytes_total: int | None = None


@dataclass(frozen=True, kw_only=True)
class LastStep:
    """The last finished run of one step of the plan."""

    step: str
    kind: str
    model: str
    outcome: Outcome
    seconds: float
    ended_at: float
    error: str = ""
    facts: dict[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LastPhase:
    """The last finished run of one phase of a model's load or move. `nbytes` is None where bytes mean nothing."""

    model: str
    kind: str
    phase: str
    seconds: float
    nbytes: int | None


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that went wrong, for the page; the log has it too."""

    at: float
    what: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class WorkerState:
    """What is known about the worker process. Versions and devices stay when it dies; `up` says whether it lives."""

    pid: int | None = None
    up: bool = False
    backend: str = ""
    reason: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    devices: tuple[DeviceFacts, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PlanState:
    """The plan that runs and how far it is. `cycles` None is forever; `outcome` is None while it runs."""

    name: str = ""
    sha256: str = ""
    path: str = ""
    cycles: int | None = None
    cycle: int = 0
    cycle_running: bool = False
    outcome: Outcome | None = None
    last_cycle_seconds: float | None = None
    last_success_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunState:
    """Everything that readers may want to know, at one moment.

    `devices` and `models` are what the worker reported last and are empty while there is no worker: what is not known
    now is not shown as if it were. `driver` maps device to NVML's answer and holds simulated devices too.
    """

    started_at: float
    plan: PlanState = PlanState()
    worker: WorkerState = WorkerState()
    running: RunningStep | None = None
    devices: tuple[DeviceSnapshot, ...] = ()
    models: tuple[ModelSnapshot, ...] = ()
    driver: dict[str, DriverMemory] = field(default_factory=dict)
    driver_errors: dict[str, str] = field(default_factory=dict)
    worker_resident: ResidentMemory | None = None
    last_steps: dict[str, LastStep] = field(default_factory=dict)
    last_phases: dict[tuple[str, str, str], LastPhase] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    forecast: dict[str, DeviceLevels] = field(default_factory=dict)
    forecast_error_bytes: dict[tuple[str, str], int] = field(default_factory=dict)
    forecast_lost: str = ""


class Store:
    """Folds events into the run's state. Subscribe `apply` first, so that every other subscriber sees the new state."""

    def __init__(self, started_at: float) -> None:
        self.state = RunState(started_at=started_at)

    def apply(self, event: Event) -> None:
        self.state = self._fold(event)

    @singledispatchmethod
    def _fold(self, _event: Event) -> RunState:
        return self.state

    def _with_fault(self, state: RunState, event: Event, what: str, detail: str) -> RunState:
        fault = Fault(at=event.at, what=what, detail=detail)
        return replace(state, faults=(*state.faults, fault)[-FAULTS_KEPT:])

    @_fold.register
    def _(self, event: PlanStarted) -> RunState:
        plan = PlanState(name=event.plan, sha256=event.sha256, path=event.path, cycles=event.cycles)
        return replace(self.state, plan=plan)

    @_fold.register
    def _(self, event: PlanEnded) -> RunState:
        return replace(self.state, plan=replace(self.state.plan, outcome=event.outcome))

    @_fold.register
    def _(self, event: CycleStarted) -> RunState:
        return replace(self.state, plan=replace(self.state.plan, cycle=event.cycle, cycle_running=True))

    @_fold.register
    def _(self, event: CycleEnded) -> RunState:
        succeeded = event.outcome is Outcome.SUCCEEDED
        plan = replace(
            self.state.plan,
            cycle_running=False,
            last_cycle_seconds=event.seconds,
            last_success_at=event.at if succeeded else self.state.plan.last_success_at,
        )
        return replace(self.state, plan=plan)

    @_fold.register
    def _(self, event: StepStarted) -> RunState:
        running = RunningStep(step=event.step, kind=event.kind, model=event.model, line=event.line, started_at=event.at)
        return replace(self.state, running=running)

    @_fold.register
    def _(self, event: PhaseStarted) -> RunState:
        if self.state.running is None:
            return self.state
        running = replace(self.state.running, phase=event.phase, bytes_done=0, bytes_total=None)
        return replace(self.state, running=running)

    @_fold.register
    def _(self, event: StepProgressed) -> RunState:
        if self.state.running is None:
            return self.state
        running = replace(
            self.state.running, phase=event.phase, bytes_done=event.bytes_done, bytes_total=event.bytes_total
        )
        return replace(self.state, running=running)

    @_fold.register
    def _(self, event: PhaseEnded) -> RunState:
        phase = LastPhase(
            model=event.model, kind=event.kind, phase=event.phase, seconds=event.seconds, nbytes=event.nbytes
        )
        key = (event.model, event.kind, event.phase)
        return replace(self.state, last_phases={**self.state.last_phases, key: phase})

    @_fold.register
    def _(self, event: StepEnded) -> RunState:
        last = LastStep(
            step=event.step,
            kind=event.kind,
            model=event.model,
            outcome=event.outcome,
            seconds=event.seconds,
            ended_at=event.at,
            error=event.error,
            facts=dict(event.facts),
        )
        state = replace(self.state, running=None, last_steps={**self.state.last_steps, event.step: last})
        if event.outcome in (Outcome.FAILED, Outcome.TIMED_OUT):
            return self._with_fault(state, event, f"step {event.step}", event.error)
        return state

    @_fold.register
    def _(self, event: ForecastMade) -> RunState:
        return replace(self.state, forecast=event.devices, forecast_lost="")

    @_fold.register
    def _(self, event: ForecastCompared) -> RunState:
        state = replace(self.state, forecast_error_bytes=event.error_bytes)
        return self._with_fault(state, event, f"forecast of {event.step}", event.cause) if event.cause else state

    @_fold.register
    def _(self, event: ForecastLost) -> RunState:
        return replace(self.state, forecast={}, forecast_error_bytes={}, forecast_lost=event.reason)

    @_fold.register
    def _(self, event: WorkerStarted) -> RunState:
        return replace(self.state, worker=replace(self.state.worker, pid=event.pid, up=False))

    @_fold.register
    def _(self, event: WorkerReady) -> RunState:
        worker = WorkerState(
            pid=event.pid,
            up=True,
            backend=event.backend,
            reason=event.reason,
            versions=event.versions,
            devices=event.devices,
        )
        return replace(self.state, worker=worker)

    @_fold.register
    def _(self, event: WorkerExited) -> RunState:
        worker = replace(self.state.worker, pid=None, up=False)
        state = replace(
            self.state,
            worker=worker,
            devices=(),
            models=(),
            driver={},
            driver_errors={},
            worker_resident=None,
            forecast={},
            forecast_error_bytes={},
        )
        return state if event.expected else self._with_fault(state, event, "worker", event.detail)

    @_fold.register
    def _(self, event: MemorySampled) -> RunState:
        simulated = {snapshot.device: snapshot.driver for snapshot in event.devices if snapshot.driver is not None}
        return replace(
            self.state,
            devices=event.devices,
            models=event.models,
            driver={**self.state.driver, **simulated},
            worker_resident=event.resident or self.state.worker_resident,
        )

    @_fold.register
    def _(self, event: ResidentSampled) -> RunState:
        return replace(self.state, worker_resident=event.resident)

    @_fold.register
    def _(self, event: DriverSampled) -> RunState:
        simulated = {name: memory for name, memory in self.state.driver.items() if name not in event.errors}
        return replace(self.state, driver={**simulated, **event.devices}, driver_errors=event.errors)

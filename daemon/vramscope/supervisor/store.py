"""The one writer of the run's state: folds events into it. Every other subscriber is told after it."""

from dataclasses import replace
from functools import singledispatchmethod

from vramscope.events import (
    CycleEnded,
    CycleStarted,
    Event,
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
from vramscope.memory.host import HostSampled
from vramscope.memory.snapshot import DriverSampled, MemorySampled, ResidentSampled, WorkerReady
from vramscope.supervisor.forecaster import ForecastCompared, ForecastLost, ForecastMade
from vramscope.supervisor.state import (
    Account,
    Fault,
    LastPhase,
    LastStep,
    PlanState,
    RunningStep,
    RunState,
    WorkerState,
)

FAULTS_KEPT = 20


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
        running = RunningStep(
            step=event.step,
            kind=event.kind,
            model=event.model,
            line=event.line,
            started_at=event.at,
            changes_memory=event.changes_memory,
        )
        # Phases that this run does not come by must not be taken for its own.
        kept = {key: phase for key, phase in self.state.last_phases.items() if key[:2] != (event.model, event.kind)}
        return replace(self.state, running=running, last_phases=kept)

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
            accounts={},
            worker_resident=None,
            forecast={},
            forecast_error_bytes={},
        )
        return state if event.expected else self._with_fault(state, event, "worker", event.detail)

    @_fold.register
    def _(self, event: MemorySampled) -> RunState:
        told = {held.device: held.driver for held in event.devices if held.driver is not None}
        accounts = {
            held.device: Account(device=held, driver=held.driver, models=event.models)
            for held in event.devices
            if held.driver is not None
        }
        return replace(
            self.state,
            devices=event.devices,
            models=event.models,
            driver={**self.state.driver, **told},
            accounts={**self.state.accounts, **accounts},
            sampled_at=event.at,
            worker_resident=event.resident or self.state.worker_resident,
        )

    @_fold.register
    def _(self, event: ResidentSampled) -> RunState:
        return replace(self.state, worker_resident=event.resident)

    @_fold.register
    def _(self, event: HostSampled) -> RunState:
        return replace(self.state, host=event.memory)

    @_fold.register
    def _(self, event: DriverSampled) -> RunState:
        state = self.state
        if event.pid != state.worker.pid:
            return state  # an answer about a worker that is gone
        kept = {name: memory for name, memory in state.driver.items() if name not in event.errors}
        accounts = {name: account for name, account in state.accounts.items() if name not in event.errors}
        running = state.running
        if event.at >= state.sampled_at and not (running and running.changes_memory):
            for held in state.devices:
                if (driver := event.devices.get(held.device)) is not None:
                    accounts[held.device] = Account(device=held, driver=driver, models=state.models)
        return replace(state, driver={**kept, **event.devices}, driver_errors=event.errors, accounts=accounts)

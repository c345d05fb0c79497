"""The one writer of the run's state: folds events into it. Every other subscriber is told after it."""

from dataclasses import replace
from functools import singledispatchmethod

from vramscope.events import (
    CycleAwaited,
    CycleEnded,
    CycleStarted,
    Event,
    JournalSampled,
    Outcome,
    PhaseEnded,
    PhaseStarted,
    PlanEnded,
    PlanReloaded,
    PlanReloadFailed,
    PlanStarted,
    StepEnded,
    StepProgressed,
    StepStarted,
    WebConfigRead,
    WorkerExited,
    WorkerStarted,
)
from vramscope.memory.host import HostSampled
from vramscope.memory.residue import AFTER_RELEASE, HISTORY_KEPT, ResidueMeasured
from vramscope.memory.snapshot import DriverSampled, MemorySampled, ResidentSampled, WorkerReady
from vramscope.supervisor.belief import believed
from vramscope.supervisor.forecaster import ForecastCompared, ForecastLost, ForecastMade
from vramscope.supervisor.state import (
    Account,
    Fault,
    LastPhase,
    LastStep,
    PlanState,
    ReloadState,
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
        reload = self.state.reload
        if reload.succeeded_at is None:
            reload = replace(reload, succeeded_at=event.at)
        return replace(self._without_others(event), plan=plan, reload=reload)

    def _without_others(self, event: PlanStarted) -> RunState:
        """The state without last results of models and steps that the plan does not name."""
        state = self.state
        return replace(
            state,
            last_steps={name: each for name, each in state.last_steps.items() if name in event.steps},
            last_phases={key: each for key, each in state.last_phases.items() if key[0] in event.models},
            residues={name: each for name, each in state.residues.items() if name in event.models},
            levels={key: each for key, each in state.levels.items() if key[0] in event.models},
        )

    @_fold.register
    def _(self, event: PlanReloaded) -> RunState:
        return replace(self.state, reload=ReloadState(succeeded_at=event.at))

    @_fold.register
    def _(self, event: PlanReloadFailed) -> RunState:
        state = replace(self.state, reload=replace(self.state.reload, problem=event.problem))
        return self._with_fault(state, event, "plan reload", event.problem)

    @_fold.register
    def _(self, event: WebConfigRead) -> RunState:
        state = replace(self.state, web_config_problem=event.problem)
        return self._with_fault(state, event, "web configuration", event.problem) if event.problem else state

    @_fold.register
    def _(self, event: PlanEnded) -> RunState:
        return replace(self.state, plan=replace(self.state.plan, outcome=event.outcome, next_cycle_at=None))

    @_fold.register
    def _(self, event: CycleAwaited) -> RunState:
        return replace(self.state, plan=replace(self.state.plan, next_cycle_at=event.starts_at))

    @_fold.register
    def _(self, event: CycleStarted) -> RunState:
        plan = replace(self.state.plan, cycle=event.cycle, cycle_running=True, next_cycle_at=None)
        return replace(self.state, plan=plan)

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
        # A simulated device is gone with its worker; what the driver tells of a card stays true but for our own use.
        known = {
            device: replace(memory, process_used_bytes=None, process_used_source="")
            for device, memory in self.state.driver.items()
        }
        state = replace(
            self.state,
            worker=worker,
            devices=(),
            models=(),
            driver={facts.device: known[facts.device] for facts in self.state.cards if facts.device in known},
            accounts={},
            worker_resident=None,
            forecast={},
            forecast_error_bytes={},
            levels={},
        )
        return state if event.expected else self._with_fault(state, event, "worker", event.detail)

    @_fold.register
    def _(self, event: MemorySampled) -> RunState:
        told = {held.device: held.driver for held in event.devices if held.driver is not None}
        accounts = {}
        for held in event.devices:
            before = self.state.accounts.get(held.device)
            if held.driver is not None:
                accounts[held.device] = Account(device=held, driver=held.driver, models=event.models)
            elif before is not None and before.holds(held, event.models):
                accounts[held.device] = before  # nothing changed since the driver was asked
        return replace(
            self.state,
            devices=event.devices,
            models=event.models,
            driver={**self.state.driver, **told},
            accounts=accounts,
            sampled_at=event.at,
            worker_resident=event.resident or self.state.worker_resident,
        )

    @_fold.register
    def _(self, event: ResidueMeasured) -> RunState:
        levels = dict(self.state.levels)
        for residue in event.residues:
            for place in residue.places:
                before = levels.get((residue.model, place.where), ())
                # A release tells anew what its cycle's unload told before.
                kept = before[:-1] if residue.after == AFTER_RELEASE else before
                levels[residue.model, place.where] = (*kept, place.level_bytes)[-HISTORY_KEPT:]
        residues = {residue.model: residue for residue in event.residues}
        return replace(self.state, residues={**self.state.residues, **residues}, levels=levels)

    @_fold.register
    def _(self, event: ResidentSampled) -> RunState:
        return replace(self.state, worker_resident=event.resident)

    @_fold.register
    def _(self, event: HostSampled) -> RunState:
        return replace(self.state, host=event.memory, host_oom_kills=event.oom_kills)

    @_fold.register
    def _(self, event: JournalSampled) -> RunState:
        before = self.state.journal.reason if self.state.journal else ""
        state = replace(self.state, journal=event)
        is_news = event.reason and event.reason != before
        return self._with_fault(state, event, "journal", event.reason) if is_news else state

    @_fold.register
    def _(self, event: DriverSampled) -> RunState:
        state = self.state
        if event.pid != (state.worker.pid or 0):
            return state  # an answer about a worker that is gone
        listed = {facts.device for facts in (*state.cards, *event.cards)} | event.errors.keys()
        told = {device: believed(state, device, memory, event.at) for device, memory in event.devices.items()}
        accounts = {device: each for device, each in state.accounts.items() if device in told or device not in listed}
        if event.at >= state.sampled_at and not state.is_memory_changing:
            for held in state.devices:
                if (driver := told.get(held.device)) is not None:
                    accounts[held.device] = Account(device=held, driver=driver, models=state.models)
        return replace(
            state,
            driver={device: each for device, each in state.driver.items() if device not in listed} | told,
            driver_errors=event.errors,
            driver_answered_at=event.answered_at,
            driver_high_water_bytes=event.high_water_bytes,
            cards=event.cards,
            accounts=accounts,
        )

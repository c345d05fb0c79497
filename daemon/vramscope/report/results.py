"""The results table: what each model took, and gave back, in each cycle."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import singledispatchmethod

from vramscope.devices.own import settled_with
from vramscope.events import (
    CycleEnded,
    CycleStarted,
    Event,
    Outcome,
    PlanStarted,
    StepEnded,
    StepStarted,
    WorkerExited,
)
from vramscope.forecast.predict import DeviceLevels
from vramscope.memory.differences import differences
from vramscope.memory.residue import AFTER_RELEASE as OF_RELEASE
from vramscope.memory.residue import Residue, ResidueMeasured
from vramscope.memory.snapshot import (
    HOST,
    DriverMemory,
    DriverSampled,
    MemorySampled,
    ModelSnapshot,
    Residency,
    WorkerReady,
)
from vramscope.report.row import ResultRow, Station
from vramscope.supervisor.forecaster import ForecastMade
from vramscope.supervisor.state import Account

ROWS_KEPT = 50
LOAD, MOVE, UNLOAD, RELEASE = "load", "move", "unload", "release"
BEFORE, ON_HOST, ON_DEVICE, AFTER_UNLOAD, AFTER_RELEASE = (
    "before",
    "on_host",
    "on_device",
    "after_unload",
    "after_release",
)


@dataclass
class _Draft:
    """A row in the making: the pictures of memory at each station, and what is known so far."""

    model: str
    cycle: int
    stations: dict[str, MemorySampled] = field(default_factory=dict)
    picture: ModelSnapshot | None = None
    device: str | None = None
    earlier_devices: tuple[str, ...] = ()
    is_on_device: bool = False
    lives: str | None = None
    foreseen: DeviceLevels | None = None
    account: Account | None = None
    residues: dict[str, Residue] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    outcome: Outcome | None = None
    cycle_outcome: Outcome | None = None

    def note_seconds(self, station: str, seconds: float) -> None:
        """Add what a move took to those before it in the cycle: a model may go in parts."""
        self.seconds[station] = self.seconds.get(station, 0.0) + seconds

    def note(self, account: Account) -> None:
        """Take the first account after the arrival; another one of that moment where it alone knows the own use."""
        first = self.account
        if first is None or (first.driver.process_used_bytes is None and account.device == first.device):
            self.account = account


class ResultsBuilder:
    """A subscriber that fills the table.

    It relies on the worker's promise to publish a MemorySampled right before each StepEnded, so that the last sample
    is the state after the step.
    """

    def __init__(self, rows_kept: int = ROWS_KEPT) -> None:
        self._rows_kept = rows_kept
        self._drafts: dict[tuple[str, int, int], _Draft] = {}
        self._plans = 0  # each counts its cycles from 1
        self._cycle = 0
        self._sample: MemorySampled | None = None
        self._foreseen: dict[str, DeviceLevels] = {}
        self._device_names: dict[str, str] = {}
        self._backend: str | None = None
        self._memory_changes = False

    def on_event(self, event: Event) -> None:
        self._fold(event)

    def rows(self) -> tuple[ResultRow, ...]:
        """Return the last rows, oldest first."""
        return tuple(self._row(draft) for draft in self._drafts.values())

    @singledispatchmethod
    def _fold(self, _event: Event) -> None:
        """Ignore what the table does not show."""

    @_fold.register
    def _(self, event: WorkerReady) -> None:
        self._backend = event.backend
        self._device_names = {device.device: device.name for device in event.devices}

    @_fold.register
    def _(self, _event: WorkerExited) -> None:
        self._sample = None

    @_fold.register
    def _(self, _event: PlanStarted) -> None:
        self._plans += 1

    @_fold.register
    def _(self, event: CycleStarted) -> None:
        self._cycle = event.cycle

    @_fold.register
    def _(self, event: MemorySampled) -> None:
        self._sample = event
        self._note_driver({each.device: each.driver for each in event.devices if each.driver})

    @_fold.register
    def _(self, event: DriverSampled) -> None:
        sample = self._sample
        if sample is not None and event.at >= sample.at and not self._memory_changes:
            self._note_driver(event.devices)

    @_fold.register
    def _(self, event: ResidueMeasured) -> None:
        for residue in event.residues:
            draft = self._drafts.get((residue.model, self._plans, self._cycle))
            if draft is not None:
                draft.residues[AFTER_RELEASE if residue.after == OF_RELEASE else AFTER_UNLOAD] = residue

    @_fold.register
    def _(self, event: ForecastMade) -> None:
        self._foreseen = event.devices

    @_fold.register
    def _(self, event: StepStarted) -> None:
        self._foreseen = {}
        self._memory_changes = event.changes_memory
        if event.kind == LOAD:
            draft = self._begin(event.model)
            if self._sample is not None:
                draft.stations[BEFORE] = self._sample
        elif event.model and event.kind in (MOVE, UNLOAD):
            self._draft(event.model).is_on_device = False

    @_fold.register
    def _(self, event: StepEnded) -> None:
        self._memory_changes = False
        if event.kind == RELEASE and event.outcome is Outcome.SUCCEEDED:
            self._released()
        if event.kind not in (LOAD, MOVE, UNLOAD) or not event.model:
            return
        draft = self._draft(event.model)
        if event.outcome is Outcome.SUCCEEDED:
            self._advance(draft, event)
        else:
            draft.outcome = event.outcome

    @_fold.register
    def _(self, event: CycleEnded) -> None:
        for draft in self._of_this_cycle():
            if draft.outcome is None:
                was_cut_short = event.outcome is Outcome.CANCELLED and AFTER_UNLOAD not in draft.stations
                draft.outcome = Outcome.CANCELLED if was_cut_short else Outcome.SUCCEEDED
            draft.cycle_outcome = event.outcome
            draft.is_on_device = False
            self._note_clean_up(draft)

    def _note_clean_up(self, draft: _Draft) -> None:
        """After a failed cycle everything was unloaded without a step; the last sample tells whether this model was."""
        sample = self._sample
        is_gone = sample is not None and all(model.model != draft.model for model in sample.models)
        if sample is not None and is_gone and draft.cycle_outcome is Outcome.FAILED:
            draft.stations.setdefault(AFTER_UNLOAD, sample)

    def _begin(self, model: str) -> _Draft:
        draft = self._drafts[model, self._plans, self._cycle] = _Draft(model, self._cycle)
        while len(self._drafts) > self._rows_kept:
            del self._drafts[next(iter(self._drafts))]
        return draft

    def _draft(self, model: str) -> _Draft:
        return self._drafts.get((model, self._plans, self._cycle)) or self._begin(model)

    def _of_this_cycle(self) -> Iterable[_Draft]:
        now = (self._plans, self._cycle)
        return (draft for (_, *when), draft in self._drafts.items() if tuple(when) == now)

    def _note_driver(self, told: dict[str, DriverMemory]) -> None:
        """Note what the driver says of the models' devices; the first word after a model's arrival makes its ledger."""
        for draft in self._of_this_cycle():
            driver = told.get(draft.device or "") if draft.is_on_device else None
            account = self._account(draft.device, driver) if driver else None
            if account is not None:
                draft.note(account)

    def _account(self, device: str | None, driver: DriverMemory) -> Account | None:
        sample = self._sample
        held = next((each for each in sample.devices if each.device == device), None) if sample else None
        if sample is None or held is None:
            return None
        return Account(device=held, driver=settled_with(driver, held), models=sample.models)

    def _advance(self, draft: _Draft, event: StepEnded) -> None:
        """Take the last sample as the station that this step has led to."""
        sample = self._sample
        if sample is None:
            return
        if event.kind == UNLOAD:
            draft.stations[AFTER_UNLOAD] = sample
            return
        picture = next((model for model in sample.models if model.model == draft.model), None)
        device = _device_of(picture, draft.device)
        if device and event.kind == MOVE and event.facts.get("to") == HOST:
            draft.note_seconds(ON_HOST, event.seconds)
            return  # a part came back, which is no arrival
        if event.kind == LOAD:
            draft.picture = picture
            draft.seconds[LOAD] = event.seconds
            draft.stations[ON_DEVICE if device else ON_HOST] = sample
        elif device:
            draft.note_seconds(ON_DEVICE, event.seconds)
            draft.stations[ON_DEVICE] = sample
        else:
            draft.note_seconds(ON_HOST, event.seconds)
        if device:
            if draft.device is not None and draft.device not in (device, *draft.earlier_devices):
                draft.earlier_devices = (*draft.earlier_devices, draft.device)
            draft.device, draft.is_on_device = device, True
            draft.lives = picture.whereabouts if picture and picture.residency is Residency.MIXED else None
            draft.foreseen = self._foreseen.get(device)
            draft.account = None
            self._note_driver({each.device: each.driver for each in sample.devices if each.driver})

    def _released(self) -> None:
        for draft in self._of_this_cycle():
            if self._sample is not None and AFTER_UNLOAD in draft.stations:
                draft.stations[AFTER_RELEASE] = self._sample

    def _row(self, draft: _Draft) -> ResultRow:
        device = draft.device or _only_device(draft.stations.values())
        picture = draft.picture
        loaded = draft.stations.get(ON_HOST) or draft.stations.get(ON_DEVICE)
        resident = loaded.resident if loaded else None
        account = draft.account
        return ResultRow(
            model=draft.model,
            cycle=draft.cycle,
            backend=self._backend,
            device=device,
            device_name=self._device_names.get(device or ""),
            was_on_device=draft.device is not None,
            earlier_devices=tuple(each for each in draft.earlier_devices if each != device),
            lives=draft.lives,
            parameters=picture.parameters if picture else None,
            dtype=picture.dtype if picture else None,
            theoretical_bytes=picture.parameter_bytes if picture else None,
            file_bytes=picture.file_bytes if picture else None,
            **{name: _station(sample, device) for name, sample in draft.stations.items()},
            forecast=_foreseen(draft.foreseen),
            device_used_bytes=draft.account.driver.process_used_bytes if draft.account else None,
            resident_bytes=resident.total_bytes if resident else None,
            load_seconds=draft.seconds.get(LOAD),
            move_seconds=draft.seconds.get(ON_DEVICE),
            move_back_seconds=draft.seconds.get(ON_HOST),
            outcome=draft.outcome,
            cycle_outcome=draft.cycle_outcome,
            ledger=account.ledger() if account else None,
            differences=differences(account.device, account.driver, account.models) if account else (),
            residue_after_unload=draft.residues.get(AFTER_UNLOAD),
            residue_after_release=draft.residues.get(AFTER_RELEASE),
        )


def _device_of(picture: ModelSnapshot | None, before: str | None) -> str | None:
    """Return the first device on which the model has tensors, or that of `before`; None where all are in RAM."""
    devices = [device for device in picture.places if device != HOST] if picture else []
    return before if before in devices else next(iter(devices), None)


def _only_device(samples: Iterable[MemorySampled]) -> str | None:
    """Return the device that a model which never left RAM is measured against: the only one there is."""
    names = {device.device for sample in samples for device in sample.devices}
    return names.pop() if len(names) == 1 else None


def _foreseen(levels: DeviceLevels | None) -> Station | None:
    if levels is None:
        return None
    return Station(allocated_bytes=levels.allocated_bytes, reserved_bytes=levels.reserved_bytes)


def _station(sample: MemorySampled, device: str | None) -> Station | None:
    held = next((each.allocator for each in sample.devices if each.device == device), None)
    return Station(allocated_bytes=held.allocated_bytes, reserved_bytes=held.reserved_bytes) if held else None

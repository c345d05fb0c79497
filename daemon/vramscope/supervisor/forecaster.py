"""Forecasts each step of a run just before it, and compares with what was measured just after."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import singledispatchmethod

from vramscope.errors import PartError
from vramscope.events import Event, Outcome, PlanStarted, StepEnded, StepStarted, WorkerExited
from vramscope.forecast.order import SOURCE_CHANGED, ModelOrder
from vramscope.forecast.predict import DeviceBudget, DeviceLevels, MisfitError, Predictor, UnknownModelError
from vramscope.memory.configuration import AllocatorConfiguration
from vramscope.memory.snapshot import (
    HOST,
    DeviceFacts,
    DeviceSnapshot,
    DriverMemory,
    DriverSampled,
    MemorySampled,
    WorkerReady,
)
from vramscope.plan.kinds import Action, Effect
from vramscope.settings import SimulationSettings
from vramscope.supervisor.current import CurrentPlan

ALLOCATED, RESERVED = "allocated", "reserved"
SIMULATED = "simulated"
# A step that fails while doing one of these leaves the devices as they were.
_TOUCHES_NO_DEVICE = {Action.NOTHING, Action.UNLOAD, Action.RELEASE}


@dataclass(frozen=True, kw_only=True)
class ModelsDescribed(Event):
    """What the worker told about models of the plan: the order of their tensors, or why it is not known.

    The first of a worker is about all of them; another follows when a model has come that was not here before.
    """

    orders: dict[str, ModelOrder]
    problems: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class ForecastMade(Event):
    """What each device should hold after the step that starts now."""

    step: str
    devices: dict[str, DeviceLevels]


@dataclass(frozen=True, kw_only=True)
class ForecastCompared(Event):
    """Measured minus forecast after a step, in bytes, by device and quantity. `cause` is empty while all is 0."""

    step: str
    error_bytes: dict[tuple[str, str], int]
    cause: str


@dataclass(frozen=True, kw_only=True)
class ForecastLost(Event):
    """From here on nothing is forecast, until the worker holds no model and no cache."""

    reason: str


class Forecaster:
    """A subscriber that walks a predictor beside the run, and publishes what it foresaw and how far off it was."""

    def __init__(
        self,
        current: CurrentPlan,
        configuration: AllocatorConfiguration,
        simulation: SimulationSettings,
        publish: Callable[[Event], None],
    ) -> None:
        self._current = current
        self._configuration = configuration
        self._simulation = simulation
        self._publish = publish
        self._orders: Mapping[str, ModelOrder] = {}
        self._facts: tuple[DeviceFacts, ...] = ()
        self._predictor: Predictor | None = None
        self._sample: MemorySampled | None = None
        self._misfit = False
        self._changing = False

    def on_event(self, event: Event) -> None:
        self._follow(event)

    @singledispatchmethod
    def _follow(self, _event: Event) -> None:
        """Pass over what changes no device."""

    @_follow.register
    def _(self, event: WorkerReady) -> None:
        self._facts = event.devices

    @_follow.register
    def _(self, _event: PlanStarted) -> None:
        self._orders, self._predictor = {}, None  # those of the plan before, if there was one

    @_follow.register
    def _(self, event: ModelsDescribed) -> None:
        known = {name: order for name, order in self._orders.items() if name not in event.problems}
        self._orders = {**known, **event.orders}
        if self._predictor is not None:
            self._predictor.learn(self._orders)
        elif self._configuration.unmodelled:
            options = ", ".join(self._configuration.unmodelled)
            self._lose(event, f"the allocator is configured with {options}, which the forecast does not follow")
        elif self._is_empty():
            self._restart()
        else:
            self._predictor = None  # until a sample says that all is empty

    @_follow.register
    def _(self, _event: WorkerExited) -> None:
        self._predictor = self._sample = None

    @_follow.register
    def _(self, event: DriverSampled) -> None:
        if self._changing or self._sample is None or event.at < self._sample.at:
            return  # it and the last sample may not be of one moment
        for held in self._sample.devices:
            self._note_outside(held, event.devices.get(held.device))

    @_follow.register
    def _(self, event: MemorySampled) -> None:
        self._sample = event
        for held in event.devices:
            if held.backend != SIMULATED:  # what a simulated one holds outside is known, its context apart
                self._note_outside(held, held.driver)
        if self._predictor is None and self._orders and self._is_empty() and not self._configuration.unmodelled:
            self._restart()

    @_follow.register
    def _(self, event: StepStarted) -> None:
        self._changing = event.changes_memory
        if self._predictor is None:
            return
        self._misfit = False
        try:
            self._predictor.apply(self._current.effect(event.step))
        except (MisfitError, PartError):
            self._misfit = True
        except UnknownModelError as error:
            self._lose(event, str(error))
            return
        self._publish(ForecastMade(at=event.at, step=event.step, devices=self._predictor.levels().devices))

    @_follow.register
    def _(self, event: StepEnded) -> None:
        self._changing = False
        if self._predictor is None:
            return
        succeeded = event.outcome is Outcome.SUCCEEDED
        if SOURCE_CHANGED in event.facts:
            self._lose(event, f"the files of {event.model} are not those any more that the forecast was made for")
            return
        if succeeded == self._misfit:
            foreseen = "no room for it" if self._misfit else "that it works"
            if succeeded or not self._leaves_devices(self._current.effect(event.step)):
                self._lose(event, f"step {event.step!r} {event.outcome.value} where the forecast said {foreseen}")
                return
        else:
            self._compare(event)
        if not succeeded:
            self._predictor.unload_all()
            # Everything is unloaded after a failure, which is no step of its own.
            self._publish(ForecastMade(at=event.at, step=event.step, devices=self._predictor.levels().devices))

    def _is_empty(self) -> bool:
        """Whether the worker holds no model and no cache, as far as it has told."""
        sample = self._sample
        held = sample.devices if sample is not None else ()
        return not (sample and sample.models) and not any(device.allocator.reserved_bytes for device in held)

    def _restart(self) -> None:
        """Begin with empty devices."""
        self._misfit = False
        budgets = {facts.device: self._budget(facts) for facts in self._facts if facts.total_bytes is not None}
        self._predictor = Predictor(self._orders, budgets, self._configuration.settings)

    def _budget(self, facts: DeviceFacts) -> DeviceBudget:
        """A simulated device's context is known; on a real one it is part of what the driver sees outside torch."""
        total = facts.total_bytes or 0
        if facts.backend != SIMULATED:
            return DeviceBudget(total_bytes=total, context_bytes=0)
        simulation = self._simulation
        return DeviceBudget(
            total_bytes=total, context_bytes=simulation.context_bytes, other_bytes=simulation.other_bytes
        )

    def _note_outside(self, held: DeviceSnapshot, driver: DriverMemory | None) -> None:
        """Let the forecast know what of a device is taken outside torch's allocator."""
        if self._predictor is None or driver is None or driver.used_bytes is None:
            return
        self._predictor.set_outside(held.device, max(0, driver.used_bytes - held.allocator.reserved_bytes))

    @staticmethod
    def _leaves_devices(effect: Effect) -> bool:
        return effect.action in _TOUCHES_NO_DEVICE or (effect.action is Action.LOAD and effect.to == HOST)

    def _compare(self, event: StepEnded) -> None:
        if self._predictor is None or self._sample is None:
            return
        foreseen = self._predictor.levels().devices
        error: dict[tuple[str, str], int] = {}
        for held in self._sample.devices:
            if (levels := foreseen.get(held.device)) is not None:
                error[held.device, ALLOCATED] = held.allocator.allocated_bytes - levels.allocated_bytes
                error[held.device, RESERVED] = held.allocator.reserved_bytes - levels.reserved_bytes
        cause = self._cause() if any(error.values()) else ""
        self._publish(ForecastCompared(at=event.at, step=event.step, error_bytes=error, cause=cause))

    def _cause(self) -> str:
        """The known reasons for which a forecast is off, most likely first."""
        guessed = sorted(name for name, order in self._orders.items() if not order.exact)
        if guessed:
            return f"the order of tensors of {', '.join(guessed)} is a guess: {self._orders[guessed[0]].basis}"
        return (
            "this release of torch allocates by other rules than those the forecast was checked against, "
            "or something beside the plan's models allocates in the worker"
        )

    def _lose(self, event: Event, reason: str) -> None:
        self._predictor = None
        self._publish(ForecastLost(at=event.at, reason=reason))

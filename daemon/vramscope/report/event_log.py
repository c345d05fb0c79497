"""Writes what happens to the log: the event's name and its fields."""

import logging
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from vramscope.events import (
    CycleEnded,
    Event,
    JournalSampled,
    Outcome,
    PlanReloadFailed,
    PlanStarted,
    StepEnded,
    StepProgressed,
    WebConfigRead,
    WorkerExited,
    event_name,
)
from vramscope.memory.host import HostSampled
from vramscope.memory.snapshot import DriverSampled, MemorySampled, Residency, ResidentSampled, WorkerReady
from vramscope.supervisor.forecaster import ModelsDescribed

logger = logging.getLogger(__name__)

_SAMPLES = (MemorySampled, DriverSampled, ResidentSampled, HostSampled, JournalSampled)
_BAD = (Outcome.FAILED, Outcome.TIMED_OUT)


class EventLog:
    """A subscriber that logs each event but progress; memory samples, several a second, only at level debug."""

    def on_event(self, event: Event) -> None:
        level = _level(event)
        if level and logger.isEnabledFor(level):
            logger.log(level, event_name(event), extra=_fields(event))


class SimulationWarning:
    """A subscriber that warns, once, where nobody asked for a simulation and there is one. For --device auto."""

    def __init__(self) -> None:
        self._is_told = False

    def on_event(self, event: Event) -> None:
        if isinstance(event, WorkerReady) and event.backend == "simulated" and not self._is_told:
            self._is_told = True
            hint = "all figures are simulated; --device simulated says that this is meant"
            logger.warning("no_gpu_is_used", extra={"reason": event.reason, "hint": hint})


def _level(event: Event) -> int:
    if isinstance(event, StepProgressed):
        return logging.NOTSET
    if isinstance(event, _SAMPLES):
        return logging.DEBUG
    if isinstance(event, WorkerExited) and not event.expected:
        return logging.ERROR
    if isinstance(event, PlanReloadFailed) or (isinstance(event, WebConfigRead) and event.problem):
        return logging.ERROR
    if isinstance(event, StepEnded | CycleEnded) and event.outcome in _BAD:
        return logging.WARNING
    return logging.INFO


def _fields(event: Event) -> dict[str, Any]:
    """Return what the event says, but its time (the line has one) and what it leaves empty; facts stand beside it."""
    if isinstance(event, MemorySampled):
        return _memory_fields(event)
    if isinstance(event, ModelsDescribed):  # the orders themselves are hundreds of tensors a model
        return {"models": sorted(event.orders), "problems": event.problems}
    skipped = ("models", "steps") if isinstance(event, PlanStarted) else ()  # a plan may have hundreds
    said: dict[str, Any] = {}
    for each in fields(event):
        value = getattr(event, each.name)
        if each.name == "facts":
            said = {**{f"fact_{key}": fact for key, fact in value.items()}, **said}
        elif each.name != "at" and value not in ("", None) and each.name not in skipped:
            said[each.name] = _plain(value)
    return said


def _plain(value: Any) -> Any:
    """Return a value that text and JSON show alike."""
    if isinstance(value, Outcome):
        return value.value
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {_key(key): _plain(each) for key, each in value.items()}
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _key(key: Any) -> str:
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def _memory_fields(event: MemorySampled) -> dict[str, Any]:
    said: dict[str, Any] = {}
    for device in event.devices:
        said[f"{device.device}_allocated_bytes"] = device.allocator.allocated_bytes
        said[f"{device.device}_reserved_bytes"] = device.allocator.reserved_bytes
    said["models"] = {
        model.model: model.whereabouts if model.residency is Residency.MIXED else model.residency.value
        for model in event.models
    }
    if event.resident is not None:
        said["resident_bytes"] = event.resident.total_bytes
    return said

"""Journals of made-up runs, as a daemon writes them."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from vramscope.events import CycleEnded, CycleStarted, Event, Outcome, PlanStarted, StepEnded
from vramscope.forecast.predict import DeviceLevels
from vramscope.journal.lines import RECORDED, JournalClosed, JournalOpened, encode
from vramscope.memory.residue import AFTER_UNLOAD, PlaceResidue, Residue, ResidueMeasured
from vramscope.memory.snapshot import WorkerReady
from vramscope.supervisor.forecaster import ForecastCompared, ForecastMade

from .picture import (
    ALLOCATED,
    PARAMETER_BYTES,
    READY,
    RESERVED,
    STARTED_AT,
    USED,
    back_and_gone,
    sample,
    step,
    until_on_device,
)

OPENED = JournalOpened(at=STARTED_AT, versions={"vramscope": "0.1.0", "python": "3.11.9"})
ENDED = JournalClosed(at=STARTED_AT + 30)
LEVELS = DeviceLevels(
    parameter_bytes=PARAMETER_BYTES,
    buffer_bytes=128,
    allocated_bytes=ALLOCATED,
    reserved_bytes=RESERVED,
    used_bytes=USED,
)


def write(path: Path, *stories: Iterable[Event]) -> Path:
    path.write_bytes(b"".join(encode(event) for story in stories for event in story if isinstance(event, RECORDED)))
    return path


def one_cycle(error_bytes: int = 0, residue_bytes: int = 0) -> Iterator[Event]:
    """The published picture with the forecast of its move, and what the model left behind."""
    for event in until_on_device():
        yield event
        if isinstance(event, StepEnded) and event.kind == "move":
            yield ForecastMade(at=event.at, step=event.step, devices={"cuda:0": LEVELS})
            errors = {("cuda:0", "allocated"): error_bytes, ("cuda:0", "reserved"): 0}
            yield ForecastCompared(
                at=event.at, step=event.step, error_bytes=errors, cause="a guess" * bool(error_bytes)
            )
    *story, cycle_ended, plan_ended = back_and_gone()
    yield from story
    place = PlaceResidue(where="cuda:0", causes={"live_tensors": residue_bytes}, level_bytes=residue_bytes)
    residue = Residue(model="qwen", after=AFTER_UNLOAD, places=(place,))
    yield ResidueMeasured(at=STARTED_AT + 22, residues=(residue,))
    yield cycle_ended
    yield plan_ended


def with_versions(story: Iterable[Event], **versions: str) -> Iterator[Event]:
    for event in story:
        yield replace(event, versions=event.versions | versions) if isinstance(event, WorkerReady) else event


def many_cycles(count: int, load_seconds: float = 1.0, *, leak: int = 0) -> Iterator[Event]:
    """Short cycles, ten seconds apart, of a model that is loaded straight to the device and unloaded."""
    yield READY
    yield PlanStarted(at=STARTED_AT + 5, plan="many", sha256="cd" * 32, path="many.yaml", cycles=count)
    for cycle in range(1, count + 1):
        at = STARTED_AT + 10.0 * cycle
        yield CycleStarted(at=at, cycle=cycle)
        there = sample(at + 1, "cuda:0", allocated=ALLOCATED, reserved=RESERVED)
        took = load_seconds * (1 + cycle % 5 / 100)
        yield from step(at, "load", took, cycle=cycle, phases=[("read", took, PARAMETER_BYTES)], after=there)
        yield from step(at + 5, "unload", 0.01, cycle=cycle, after=sample(at + 5, None))
        place = PlaceResidue(where="cuda:0", causes={"live_tensors": leak * cycle}, level_bytes=leak * cycle)
        residue = Residue(model="qwen", after=AFTER_UNLOAD, places=(place,))
        yield ResidueMeasured(at=at + 5, residues=(residue,))
        yield CycleEnded(at=at + 6, cycle=cycle, outcome=Outcome.SUCCEEDED, seconds=6.0)

"""What a line of the journal is: a JSON object with the schema's number, the event's name, its time, and its fields.

    {"schema": 1, "event": "cycle_started", "at": 1769860800.25, "cycle": 3}

`at` is seconds since the epoch. A later release of the same schema may add events and fields, which are passed over. A
line that says `"again": true` repeats one of an earlier file, so that a file can be read without it.

Progress is not written, nor is the order of a model's tensors, which is long and follows from its files. A plan's texts
are in no event.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

from pydantic import TypeAdapter, ValidationError

from vramscope.errors import VramscopeError
from vramscope.events import (
    CycleEnded,
    CycleStarted,
    Event,
    PhaseEnded,
    PhaseStarted,
    PlanEnded,
    PlanReloaded,
    PlanReloadFailed,
    PlanStarted,
    StepEnded,
    StepStarted,
    WebConfigRead,
    WorkerExited,
    WorkerStarted,
    event_name,
)
from vramscope.memory.host import HostSampled
from vramscope.memory.residue import ResidueMeasured
from vramscope.memory.snapshot import DriverSampled, MemorySampled, ResidentSampled, WorkerReady
from vramscope.supervisor.forecaster import ForecastCompared, ForecastLost, ForecastMade

SCHEMA = 1
# Every line begins so, which tells a journal from any other file, even where the rest of the line is lost.
HEAD = b'{"schema": '
_HEAD = re.compile(rb'\{"schema": (\d{1,9})[,}]')
_LARGEST = 2**63
_LATEST = 1e11  # the year 5138


@dataclass(frozen=True, kw_only=True)
class JournalOpened(Event):
    """A file of the journal begins, or a daemon goes on with it; `versions` are the supervisor's."""

    versions: dict[str, str]


@dataclass(frozen=True, kw_only=True)
class JournalGap(Event):
    """So many events since `since` are missing here, because nothing could be written for too long."""

    since: float
    dropped: int


@dataclass(frozen=True, kw_only=True)
class JournalClosed(Event):
    """The daemon ended, and wrote everything that it had."""


RECORDED: tuple[type[Event], ...] = (
    JournalOpened,
    JournalGap,
    JournalClosed,
    PlanStarted,
    PlanEnded,
    PlanReloaded,
    PlanReloadFailed,
    WebConfigRead,
    CycleStarted,
    CycleEnded,
    StepStarted,
    StepEnded,
    PhaseStarted,
    PhaseEnded,
    WorkerStarted,
    WorkerReady,
    WorkerExited,
    MemorySampled,
    ResidentSampled,
    DriverSampled,
    HostSampled,
    ResidueMeasured,
    ForecastMade,
    ForecastCompared,
    ForecastLost,
)
_KINDS: dict[str, type] = {event_name(kind): kind for kind in RECORDED}


class LineError(VramscopeError):
    """A line that is damaged, or not of a journal."""


class SchemaError(VramscopeError):
    """A line of another schema than this release reads."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One line. `event` is None where this release does not know its kind."""

    event: Event | None
    again: bool = False


def encode(event: Event, *, again: bool = False) -> bytes:
    """One line. Raises ValueError for a number that JSON does not have."""
    values = asdict(event)
    if isinstance(event, ForecastCompared):  # its keys are pairs, which JSON does not have
        nested: dict[str, dict[str, int]] = {}
        for (device, quantity), nbytes in event.error_bytes.items():
            nested.setdefault(device, {})[quantity] = nbytes
        values["error_bytes"] = nested
    line = {"schema": SCHEMA, "event": event_name(event), "at": values.pop("at"), **values}
    if again:
        line["again"] = True
    return json.dumps(line, allow_nan=False).encode("ascii") + b"\n"


def schema_of(start: bytes) -> int | None:
    """The schema of a line by its first bytes; None where it is not one of a journal."""
    match = _HEAD.match(start)
    return int(match[1]) if match else None


def decode(line: bytes) -> Record:
    """Raises LineError, and SchemaError for a line that may mean something else than it would in this schema."""
    try:
        data = json.loads(line, parse_constant=_refuse, parse_int=_bounded, parse_float=_finite)
        schema, name, again = data.pop("schema"), data.pop("event"), data.pop("again", False) is True
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise LineError("expected a JSON object with a schema and an event") from None
    if schema != SCHEMA or isinstance(schema, bool):
        raise SchemaError(_other_schema(schema))
    kind = _KINDS.get(name) if isinstance(name, str) else None
    if kind is None:
        return Record(event=None, again=again)
    try:
        if kind is ForecastCompared:
            data["error_bytes"] = _paired(data["error_bytes"])
        event = _adapter(kind).validate_python(data)
    except (ValidationError, KeyError, AttributeError, TypeError, RecursionError):
        raise LineError(f"the fields of {name} are not as expected") from None
    if not 0 <= event.at < _LATEST:
        raise LineError(f"{event.at} is no time of an event")
    return Record(event=event, again=again)


def _other_schema(schema: object) -> str:
    if isinstance(schema, int) and schema > SCHEMA:
        return f"written by a newer vramscope: schema {schema}, and this one reads {SCHEMA}"
    return f"schema {schema!r} is not known; this vramscope reads {SCHEMA}"


def _paired(nested: Mapping[str, Mapping[str, int]]) -> dict[tuple[str, str], int]:
    return {(device, each): nbytes for device, told in nested.items() for each, nbytes in told.items()}


@cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _refuse(constant: str) -> float:
    raise ValueError(constant)


def _bounded(digits: str) -> int:
    if len(digits) > 20 or abs(value := int(digits)) >= _LARGEST:  # noqa: PLR2004  longer than any below the bound
        raise ValueError("larger than any count of bytes")
    return value


def _finite(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise ValueError("not a finite number")
    return value

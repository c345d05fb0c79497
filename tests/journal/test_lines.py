import json
import re
from pathlib import Path

import pytest

import vramscope
from vramscope.events import CycleStarted, Outcome, PlanStarted, StepEnded
from vramscope.journal.lines import (
    RECORDED,
    JournalClosed,
    JournalGap,
    JournalOpened,
    LineError,
    SchemaError,
    decode,
    encode,
    schema_of,
)
from vramscope.memory.snapshot import DriverMemory, DriverSampled
from vramscope.supervisor.forecaster import ForecastCompared, ForecastLost, ForecastMade

from ..collectors.test_catalog import FORECAST  # noqa: TID252 - tests are not packages
from ..picture import back_and_gone, left_behind, until_on_device  # noqa: TID252 - tests are not packages

EVENT_CLASS = re.compile(r"^class (\w+)\((?:Step)?Event\):", re.MULTILINE)
DRIVER = DriverSampled(
    at=9.5, pid=7, devices={"cuda:0": DriverMemory(total_bytes=5)}, errors={"cuda:1": "lost"}, driver_version="580.1"
)
OTHERS = [
    JournalOpened(at=1.0, versions={"vramscope": "0.1.0"}),
    JournalGap(at=2.0, since=1.0, dropped=3),
    JournalClosed(at=3.0),
    ForecastLost(at=4.0, reason="why"),
    DRIVER,
]


def story():
    yield from OTHERS
    yield from FORECAST
    yield from until_on_device()
    yield from left_behind(live=64 << 20)
    yield from back_and_gone()


def recorded():
    return [event for event in story() if isinstance(event, RECORDED)]


def test_what_is_read_is_what_was_written():
    assert [decode(encode(event)).event for event in recorded()] == recorded()


def test_a_line_is_one_object_with_schema_event_and_time():
    line = encode(CycleStarted(at=1769860800.25, cycle=3))
    assert line == b'{"schema": 1, "event": "cycle_started", "at": 1769860800.25, "cycle": 3}\n'
    assert schema_of(line[:20]) == 1


def test_text_of_any_kind_stays_on_its_line():
    event = PlanStarted(at=1.0, plan="a\nb\u2028c\ud800 大", sha256="", path="", cycles=None)
    line = encode(event)
    assert line.count(b"\n") == 1
    assert decode(line).event == event


def test_a_line_that_repeats_says_so():
    assert decode(encode(CycleStarted(at=1.0, cycle=3), again=True)).again
    assert not decode(encode(CycleStarted(at=1.0, cycle=3))).again


def test_a_number_that_json_does_not_have_is_refused():
    with pytest.raises(ValueError, match="JSON"):
        encode(CycleStarted(at=float("nan"), cycle=3))


def test_unknown_fields_and_unknown_events_of_this_schema_are_passed_over():
    line = json.loads(encode(CycleStarted(at=1.0, cycle=3)))
    assert decode(json.dumps(line | {"colour": "red"}).encode()).event == CycleStarted(at=1.0, cycle=3)
    assert decode(json.dumps(line | {"event": "cycle_dreamt"}).encode()).event is None


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (2, "written by a newer vramscope: schema 2, and this one reads 1"),
        (0, "schema 0 is not known; this vramscope reads 1"),
        ("1", "schema '1' is not known; this vramscope reads 1"),
        (True, "schema True is not known; this vramscope reads 1"),
    ],
)
def test_another_schema_is_never_guessed_at(schema, text):
    with pytest.raises(SchemaError, match="schema") as caught:
        decode(json.dumps({"schema": schema, "event": "cycle_started", "at": 1.0, "cycle": 1}).encode())
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\x00\x00\x00",
        b"\xff\xfe",
        b"[1]",
        b"3",
        b"{}",
        b'{"schema": 1, "event": "cycle_started", "at": 1.0',
        b'{"schema": 1, "event": "cycle_started", "cycle": 1}',
        b'{"schema": 1, "event": "cycle_started", "at": NaN, "cycle": 1}',
        b'{"schema": 1, "event": "cycle_started", "at": 1e999, "cycle": 1}',
        b'{"schema": 1, "event": "cycle_started", "at": 1e300, "cycle": 1}',
        b'{"schema": 1, "event": "cycle_started", "at": -1, "cycle": 1}',
        b'{"schema": 1, "event": "cycle_started", "at": 1.0, "cycle": 99999999999999999999999}',
        b'{"schema": 1, "event": "cycle_ended", "at": 1.0, "cycle": 1, "outcome": "so-so", "seconds": 1}',
        b'{"schema": 1, "event": "forecast_compared", "at": 1.0, "step": "", "error_bytes": [], "cause": ""}',
        b"[" * 100_000,
    ],
)
def test_a_damaged_line_is_an_error_of_its_own(line):
    with pytest.raises(LineError):
        decode(line)


def test_the_events_that_hold_most_are_not_recorded():
    assert {kind.__name__ for kind in RECORDED}.isdisjoint({"StepProgressed", "ModelsDescribed", "JournalSampled"})
    assert {ForecastMade, ForecastCompared, StepEnded} <= set(RECORDED)
    assert decode(encode(StepEnded(at=1.0, step="s", kind="k", model="m", cycle=1, outcome=Outcome.FAILED, seconds=1)))
    assert ForecastCompared in RECORDED


def test_every_event_is_recorded_or_left_out_on_purpose():
    """Whoever adds an event decides: a report cannot tell of what the journal never got."""
    source = Path(vramscope.__file__).parent
    named = {name for path in source.rglob("*.py") for name in EVENT_CLASS.findall(path.read_text(encoding="utf-8"))}
    assert named - {kind.__name__ for kind in RECORDED} == {
        "StepEvent",  # a base
        "StepProgressed",  # ten a second
        "ModelsDescribed",  # the order of all tensors
        "CycleAwaited",  # what comes follows from the plan; what came is told when it starts
        "JournalSampled",  # the journal about itself
    }

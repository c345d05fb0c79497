import logging
from dataclasses import replace

import pytest

from vramscope.events import CycleStarted, Outcome, WorkerExited
from vramscope.memory.snapshot import DriverMemory, DriverSampled, ResidentSampled
from vramscope.report.event_log import EventLog, SimulationWarning

from ..picture import ALLOCATED, READY, RESIDENT, back_and_gone, step, until_on_device  # noqa: TID252 - tests are no packages


@pytest.fixture
def told(caplog):
    def tell(*stories, level=logging.INFO):
        caplog.clear()
        with caplog.at_level(level, logger="vramscope"):
            log = EventLog()
            for story in stories:
                for event in story:
                    log.on_event(event)
        return {record.getMessage(): record for record in caplog.records}

    return tell


def test_each_kind_of_event_has_a_line_but_progress_and_samples(told):
    assert set(told(until_on_device(), back_and_gone())) == {
        "worker_started",
        "worker_ready",
        "plan_started",
        "cycle_started",
        "step_started",
        "phase_started",
        "phase_ended",
        "step_ended",
        "cycle_ended",
        "plan_ended",
    }


def test_fields_are_the_events_without_what_is_empty_and_facts_stand_beside_them(told):
    record = told(step(1.0, "load", 2.5, facts={"bytes": 17}))["step_ended"]
    assert (record.step, record.kind, record.seconds, record.fact_bytes) == ("load qwen", "load", 2.5, 17)
    assert record.outcome == "succeeded"
    assert not hasattr(record, "error")
    assert not hasattr(record, "at")


def test_the_devices_of_a_worker_are_plain_values(told):
    assert told(until_on_device())["worker_ready"].devices[0]["name"] == "simulated 12 GiB"


def test_samples_are_told_in_short_at_level_debug(told):
    sampled = DriverSampled(at=1.0, pid=17, devices={"cuda:0": DriverMemory(total_bytes=5)})
    records = told(until_on_device(), [sampled, ResidentSampled(at=1.0, resident=RESIDENT)], level=logging.DEBUG)
    assert getattr(records["memory_sampled"], "cuda:0_allocated_bytes") == ALLOCATED
    assert records["driver_sampled"].devices["cuda:0"]["total_bytes"] == 5
    assert records["resident_sampled"].resident["swap_bytes"] == 0
    assert "step_progressed" not in records


def test_what_went_wrong_is_louder(told):
    failed = step(1.0, "load", 1.0, outcome=Outcome.FAILED, error="no file")
    exited = WorkerExited(at=1.0, pid=1, reason="signal", detail="killed", expected=False)
    records = told(failed, [exited, CycleStarted(at=1.0, cycle=1)])
    assert records["step_ended"].levelno == logging.WARNING
    assert records["worker_exited"].levelno == logging.ERROR
    assert records["cycle_started"].levelno == logging.INFO


def test_a_worker_that_was_told_to_end_is_no_error(told):
    exited = WorkerExited(at=1.0, pid=1, reason="exit", detail="done", expected=True)
    assert told([exited])["worker_exited"].levelno == logging.INFO


def test_a_simulation_that_nobody_asked_for_is_one_warning(caplog):
    warning = SimulationWarning()
    for event in (READY, READY, replace(READY, backend="cuda")):
        warning.on_event(event)
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (logging.WARNING, "no_gpu_is_used")
    assert record.reason == "torch 2.13.0+cpu is built without CUDA"

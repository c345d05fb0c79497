from dataclasses import replace

import pytest

from vramscope.events import CycleStarted, Event, Outcome, StepStarted, WorkerExited, WorkerStarted
from vramscope.memory.snapshot import (
    AllocatorMemory,
    DeviceFacts,
    DeviceSnapshot,
    DriverMemory,
    DriverSampled,
    MemorySampled,
    ResidentMemory,
    ResidentSampled,
)
from vramscope.supervisor.state import RunState
from vramscope.supervisor.store import FAULTS_KEPT, Store

from ..picture import (  # noqa: TID252 - tests are not packages
    ALLOCATED,
    PARAMETER_BYTES,
    READY,
    STARTED_AT,
    TOTAL,
    back_and_gone,
    running,
    step,
    told,
    until_on_device,
)


def ended(*, expected: bool) -> WorkerExited:
    return WorkerExited(at=STARTED_AT + 40, pid=17, reason="signal", detail="killed by SIGKILL", expected=expected)


def test_a_run_begins_with_nothing_known():
    assert Store(STARTED_AT).state == RunState(started_at=STARTED_AT)


def test_an_event_that_nobody_folds_changes_nothing():
    store = told(until_on_device())
    before = store.state
    store.apply(Event(at=1.0))
    assert store.state is before


def test_readers_keep_the_picture_that_they_took():
    store = told(until_on_device())
    before = store.state
    store.apply(CycleStarted(at=1.0, cycle=2))
    assert before.plan.cycle == 1
    assert store.state.plan.cycle == 2


def test_the_worker_is_up_only_when_it_is_ready():
    store = told([WorkerStarted(at=1.0, pid=17)])
    assert (store.state.worker.pid, store.state.worker.up) == (17, False)
    store.apply(READY)
    assert store.state.worker.up
    assert store.state.worker.backend == "simulated"


def test_a_simulated_device_answers_in_the_drivers_place():
    state = told(until_on_device()).state
    assert state.driver["cuda:0"].total_bytes == TOTAL
    assert state.devices[0].allocator.allocated_bytes == ALLOCATED


@pytest.mark.parametrize(("expected", "faults"), [(True, 0), (False, 1)])
def test_what_a_dead_worker_held_is_no_longer_shown_but_what_it_was_is(expected, faults):
    state = told(until_on_device(), [ended(expected=expected)]).state
    assert (state.devices, state.models, state.driver, state.worker_resident) == ((), (), {}, None)
    assert (state.worker.up, state.worker.pid) == (False, None)
    assert state.worker.versions["torch"] == "2.13.0+cpu"
    assert len(state.faults) == faults


def test_progress_belongs_to_the_running_step_and_its_phase():
    state = told(running()).state
    assert state.running is not None
    assert (state.running.bytes_done, state.running.bytes_total) == (PARAMETER_BYTES // 2, PARAMETER_BYTES)


def test_progress_without_a_running_step_is_dropped():
    assert told([event for event in running() if not isinstance(event, StepStarted)]).state.running is None


def test_a_new_phase_counts_its_bytes_anew():
    again = [event for event in running("synchronise") if not isinstance(event, StepStarted)][:1]
    state = told(running(), again).state
    assert state.running is not None
    assert (state.running.phase, state.running.bytes_done, state.running.bytes_total) == ("synchronise", 0, None)


def test_an_ended_step_is_the_last_of_its_name_and_no_longer_runs():
    state = told(until_on_device(), back_and_gone()).state
    assert state.running is None
    assert state.last_steps["tokenize qwen"].facts["tokens"] == 15
    assert state.last_phases["qwen", "load", "read"].nbytes == PARAMETER_BYTES
    assert state.plan.outcome is Outcome.SUCCEEDED
    assert state.plan.last_cycle_seconds == 18.0
    assert state.plan.last_success_at == STARTED_AT + 23


def test_a_failed_step_is_a_fault_and_only_the_latest_faults_are_kept():
    stories = [step(float(at), "load", 1.0, outcome=Outcome.FAILED, error=f"no {at}") for at in range(FAULTS_KEPT + 3)]
    faults = told(*stories).state.faults
    assert len(faults) == FAULTS_KEPT
    assert faults[-1].what == "step load qwen"
    assert faults[-1].detail == f"no {FAULTS_KEPT + 2}"


def test_a_cancelled_step_is_no_fault():
    assert told(step(1.0, "wait", 1.0, outcome=Outcome.CANCELLED)).state.faults == ()


def test_a_driver_that_fails_for_one_device_takes_that_answer_away():
    good = DriverSampled(
        at=1.0, pid=17, devices={"cuda:0": DriverMemory(total_bytes=1), "cuda:1": DriverMemory(total_bytes=2)}
    )
    bad = DriverSampled(at=2.0, pid=17, devices={"cuda:0": DriverMemory(total_bytes=1)}, errors={"cuda:1": "lost"})
    state = told([READY, good, bad]).state
    assert set(state.driver) == {"cuda:0"}
    assert state.driver_errors == {"cuda:1": "lost"}


def test_an_answer_about_a_worker_that_is_gone_is_not_taken():
    late = DriverSampled(at=9.0, pid=16, devices={"cuda:0": DriverMemory(total_bytes=1)})
    assert told([READY, late]).state.driver == {}


def test_ledger_keeps_two_looks_of_one_moment_while_a_step_changes_memory():
    """A driver that is asked in the middle of a move sees more than the worker has told: the two must not be mixed."""
    told_by_worker = MemorySampled(
        at=10.0, devices=(DeviceSnapshot(device="cuda:0", backend="cuda", allocator=AllocatorMemory()),), models=()
    )
    before = DriverSampled(at=11.0, pid=17, devices={"cuda:0": DriverMemory(total_bytes=100, used_bytes=10)})
    moving = StepStarted(at=12.0, step="move", kind="move", model="m", cycle=1, line=1, changes_memory=True)
    meanwhile = DriverSampled(at=13.0, pid=17, devices={"cuda:0": DriverMemory(total_bytes=100, used_bytes=60)})
    state = told([READY, told_by_worker, before, moving, meanwhile]).state
    assert state.driver["cuda:0"].used_bytes == 60
    assert state.accounts["cuda:0"].driver.used_bytes == 10
    assert sum(state.accounts["cuda:0"].ledger().values()) == 100


def test_ram_is_what_was_told_last_and_a_sample_without_it_takes_nothing_away():
    outside = ResidentMemory(anonymous_bytes=1, file_bytes=2, swap_bytes=0, peak_bytes=3)
    store = told(until_on_device(), [ResidentSampled(at=1.0, resident=outside)])
    assert store.state.worker_resident == outside
    store.apply(MemorySampled(at=2.0, devices=(), models=()))
    assert store.state.worker_resident == outside


def test_versions_of_a_new_worker_replace_those_of_the_old():
    newer = replace(READY, versions={"torch": "2.14.0"}, pid=18)
    assert told(until_on_device(), [newer]).state.worker.versions == {"torch": "2.14.0"}


def test_a_step_that_starts_anew_leaves_no_phase_of_the_run_before_it():
    first = step(1.0, "load", 1.0, phases=[("import", 0.5, None), ("read", 0.5, 10)])
    other = step(3.0, "move", 1.0, phases=[("copy", 0.5, 10)])
    again = step(5.0, "load", 1.0, phases=[("read", 0.5, 10)])
    assert list(told(first, other, again).state.last_phases) == [("qwen", "move", "copy"), ("qwen", "load", "read")]


CARD = replace(READY, backend="cuda", devices=(DeviceFacts(device="cuda:0", backend="cuda", name="A100"),))


def held(reserved: int, driver: DriverMemory | None = None, at: float = 10.0, *, is_open: bool = True) -> MemorySampled:
    allocator = AllocatorMemory(reserved_bytes=reserved)
    device = DeviceSnapshot(device="cuda:0", backend="cuda", allocator=allocator, driver=driver, is_open=is_open)
    return MemorySampled(at=at, devices=(device,), models=())


def listed(own: int | None, at: float = 11.0) -> DriverSampled:
    memory = DriverMemory(
        total_bytes=1000, used_bytes=900, process_used_bytes=own, process_used_source="driver" if own else ""
    )
    return DriverSampled(at=at, pid=17, devices={"cuda:0": memory})


MEASURED = DriverMemory(process_used_bytes=590, process_used_source="measured")


@pytest.mark.parametrize(
    ("sample", "own", "expected"),
    [
        (held(500), 600, (600, "driver")),
        (held(500, MEASURED), None, (590, "measured")),
        (held(500, MEASURED), 7, (590, "measured")),
        (held(500), 7, (None, "")),
        (held(0, is_open=False), 7, (None, "")),
    ],
    ids=["listed", "hidden", "another with our number", "the same, not measured", "no context"],
)
def test_own_use_is_believed_as_far_as_it_fits_what_the_worker_told(sample, own, expected):
    memory = told([CARD, sample, listed(own)]).state.driver["cuda:0"]
    assert (memory.process_used_bytes, memory.process_used_source) == expected


def test_while_a_step_changes_memory_a_number_that_was_never_believed_is_not():
    moving = StepStarted(at=12.0, step="move", kind="move", model="m", cycle=1, line=1, changes_memory=True)
    store = told([CARD, held(500, MEASURED), listed(7), moving, listed(700, at=13.0)])
    assert store.state.driver["cuda:0"].process_used_bytes is None
    store = told([CARD, held(500), listed(600), moving, listed(50, at=13.0)])
    assert store.state.driver["cuda:0"].process_used_bytes == 50


def test_real_cards_outlive_the_worker_without_its_use_and_simulated_ones_do_not():
    cards = (DeviceFacts(device="nvml:0", backend="nvml", name="A100"),)
    memory = DriverMemory(used_bytes=9, process_used_bytes=5, process_used_source="driver")
    seen = DriverSampled(at=1.0, pid=17, devices={"nvml:0": memory}, errors={"nvml:1": "lost"}, cards=cards)
    state = told(until_on_device(), [seen, ended(expected=True)]).state
    assert state.driver == {"nvml:0": DriverMemory(used_bytes=9)}
    assert state.driver_errors == {"nvml:1": "lost"}


def test_card_that_got_its_cuda_name_has_lost_the_other():
    before = DriverSampled(
        at=1.0,
        pid=17,
        devices={"nvml:0": DriverMemory(used_bytes=9)},
        cards=(DeviceFacts(device="nvml:0", backend="nvml", name="A100"),),
    )
    state = told([CARD, before, listed(None)]).state
    assert set(state.driver) == {"cuda:0"}


def test_account_of_what_is_no_longer_held_is_not_kept_where_the_driver_does_not_answer():
    store = told([CARD, held(500), listed(600), held(500, at=12.0)])
    assert set(store.state.accounts) == {"cuda:0"}
    store.apply(held(700, at=13.0))
    assert store.state.accounts == {}


def test_accounts_of_a_device_that_answers_in_part_are_kept():
    partly = replace(listed(None), errors={"cuda:0": "the use of each process is not known"})
    assert set(told([CARD, held(500), partly]).state.accounts) == {"cuda:0"}
    silent = replace(partly, devices={})
    assert told([CARD, held(500), partly, silent]).state.accounts == {}


def test_what_the_worker_was_told_later_is_not_replaced_by_an_older_answer():
    newer = replace(MEASURED, used_bytes=950)
    assert told([CARD, held(500, newer, at=12.0), listed(None)]).state.driver["cuda:0"] == newer

import json
from dataclasses import replace

from vramscope.events import CycleEnded, CycleStarted, Outcome, StepStarted, WorkerExited
from vramscope.memory.residue import PlaceResidue, Residue, ResidueMeasured
from vramscope.memory.snapshot import DriverMemory, DriverSampled, MemorySampled, Residency
from vramscope.report.results import ResultsBuilder
from vramscope.report.row import Station

from ..picture import (  # noqa: TID252 - tests are not packages
    ALLOCATED,
    CONTEXT,
    FILE_BYTES,
    PARAMETER_BYTES,
    PARAMETERS,
    RESERVED,
    RESIDENT,
    STARTED_AT,
    TOTAL,
    USED,
    back_and_gone,
    model_on,
    sample,
    step,
    until_on_device,
)

NOTHING = Station(allocated_bytes=0, reserved_bytes=0)


def built(*stories, rows_kept=50):
    builder = ResultsBuilder(rows_kept)
    for story in stories:
        for event in story:
            builder.on_event(event)
    return builder.rows()


def one(*stories):
    (row,) = built(*stories)
    return row


def test_a_whole_cycle_is_one_row_with_a_figure_at_every_station():
    row = one(until_on_device(), back_and_gone())
    assert (row.model, row.cycle, row.backend, row.device) == ("qwen", 1, "simulated", "cuda:0")
    assert (row.parameters, row.dtype, row.theoretical_bytes) == (PARAMETERS, "float16", PARAMETER_BYTES)
    assert row.file_bytes == FILE_BYTES
    assert row.stations == (
        NOTHING,
        NOTHING,
        Station(allocated_bytes=ALLOCATED, reserved_bytes=RESERVED),
        Station(allocated_bytes=0, reserved_bytes=RESERVED),
        NOTHING,
    )
    assert row.device_used_bytes == USED
    assert row.resident_bytes == RESIDENT.total_bytes
    assert (row.load_seconds, row.move_seconds, row.move_back_seconds) == (1.25, 0.125, 0.25)
    assert row.outcome is Outcome.SUCCEEDED


def test_a_row_is_there_while_its_cycle_runs_and_knows_no_more_than_has_happened():
    row = one(until_on_device())
    assert row.outcome is None
    assert (row.after_unload, row.after_release, row.move_back_seconds) == (None, None, None)


def test_the_row_is_json():
    assert json.loads(json.dumps(one(until_on_device()).as_json()))["on_device"]["allocated_bytes"] == ALLOCATED


def test_each_cycle_has_its_row_and_only_the_last_are_kept():
    cycles = []
    for cycle in range(1, 5):
        cycles += [CycleStarted(at=1.0, cycle=cycle), *step(1.0, "load", 1.0, after=sample(1.0, "cpu"), cycle=cycle)]
        cycles += [CycleEnded(at=1.0, cycle=cycle, outcome=Outcome.SUCCEEDED, seconds=1.0)]
    assert [row.cycle for row in built(cycles, rows_kept=3)] == [2, 3, 4]


def test_a_load_straight_to_the_device_skips_the_station_in_ram():
    row = one(step(1.0, "load", 2.0, after=sample(1.0, "cuda:0", allocated=ALLOCATED, reserved=RESERVED)))
    assert row.on_host is None
    assert row.on_device == Station(allocated_bytes=ALLOCATED, reserved_bytes=RESERVED)
    assert row.load_seconds == 2.0
    assert row.move_seconds is None
    assert row.device_used_bytes == USED


def test_the_drivers_figure_is_the_first_one_that_is_believed_after_the_models_arrival():
    def real(event):
        devices = tuple(replace(device, driver=None) for device in event.devices)
        return replace(event, devices=devices)

    def driver(used):
        memory = DriverMemory(total_bytes=TOTAL, used_bytes=used, free_bytes=TOTAL - used, process_used_bytes=used)
        return DriverSampled(at=STARTED_AT + 9, pid=17, devices={"cuda:0": memory})

    story = [real(event) if isinstance(event, MemorySampled) else event for event in until_on_device()]
    gone = [real(event) if isinstance(event, MemorySampled) else event for event in back_and_gone()]
    assert one([driver(USED)], story).device_used_bytes is None
    later = [driver(USED + 1), driver(USED + 2)]
    assert one([driver(USED)], story, later, gone, [driver(USED + 3)]).device_used_bytes == USED + 1
    assert one(story, [driver(7)]).device_used_bytes is None, "less than is reserved: another process with our number"


def test_the_ledger_is_that_of_the_models_arrival_and_explains_itself():
    row = one(until_on_device(), back_and_gone())
    assert sum(row.ledger.values()) == TOTAL
    assert (row.ledger["parameters"], row.ledger["cuda_context"]) == (PARAMETER_BYTES, CONTEXT)
    assert [each.owner for each in row.differences] == [
        None,
        "allocator_rounding",
        "allocator_cache",
        "cuda_context",
        "free",
    ]
    assert row.as_json()["differences"][0]["to"] == "file_bytes"


def test_what_the_driver_says_while_memory_changes_is_no_ledger():
    def real(event):
        return replace(event, devices=tuple(replace(device, driver=None) for device in event.devices))

    def driver(at):
        memory = DriverMemory(total_bytes=TOTAL, used_bytes=USED, process_used_bytes=USED)
        return DriverSampled(at=at, pid=17, devices={"cuda:0": memory})

    story = [real(event) if isinstance(event, MemorySampled) else event for event in until_on_device()]
    changing = StepStarted(at=STARTED_AT + 9, step="x", kind="load", model="x", cycle=1, line=1, changes_memory=True)
    assert one(story, [driver(STARTED_AT)]).ledger is None, "asked before the model came"
    assert one(story, [driver(STARTED_AT + 9)]).ledger["parameters"] == PARAMETER_BYTES
    qwen, _ = built(story, [changing, driver(STARTED_AT + 9)])
    assert qwen.ledger is None


def test_what_a_model_left_behind_is_in_the_row_of_its_cycle():
    def measured(after, nbytes, model="qwen"):
        place = PlaceResidue(where="cuda:0", causes={"allocator_cache": nbytes}, level_bytes=0)
        return ResidueMeasured(at=1.0, residues=(Residue(model=model, after=after, places=(place,)),))

    row = one(until_on_device(), back_and_gone(), [measured("unload", 7), measured("release", 0)])
    assert row.left_bytes(row.residue_after_unload) == 7
    assert row.left_bytes(row.residue_after_release) == 0
    assert row.residue is row.residue_after_release
    assert row.as_json()["residue_after_unload"][0]["text"] == "7 bytes left"
    assert one(until_on_device(), [measured("release", 0, model="other")]).residue is None
    row = one(until_on_device(), [measured("reset", 5)])
    assert row.left_bytes(row.residue_after_unload) == 5, "the clean-up after a failed cycle unloads"


def test_a_failed_step_is_the_outcome_of_its_model_only():
    failed = step(9.0, "move", 0.1, name="bad", outcome=Outcome.FAILED, error="out of memory")
    other = step(9.5, "load", 0.1, model="other", after=sample(9.5, "cpu"))
    gone = step(9.7, "unload", 0.1, model="other", after=sample(9.7, None))
    end = CycleEnded(at=10.0, cycle=1, outcome=Outcome.FAILED, seconds=5.0)
    rows = {row.model: row for row in built(until_on_device(), failed, other, gone, [end])}
    assert rows["qwen"].outcome is Outcome.FAILED
    assert rows["other"].outcome is Outcome.SUCCEEDED


def test_a_model_that_a_cancelled_cycle_left_behind_shares_the_cycles_outcome():
    end = CycleEnded(at=10.0, cycle=1, outcome=Outcome.CANCELLED, seconds=5.0)
    assert one(until_on_device(), [end]).outcome is Outcome.CANCELLED


def test_a_load_that_fails_before_anything_is_known_leaves_an_empty_row():
    row = one(step(1.0, "load", 0.1, outcome=Outcome.FAILED, error="no such model"))
    assert row.outcome is Outcome.FAILED
    assert (row.device, row.parameters, row.before, row.load_seconds) == (None, None, None, None)


def test_steps_of_other_kinds_are_no_rows():
    assert built(step(1.0, "tokenize", 0.1), step(1.0, "wait", 0.1, model="")) == ()


def failed_cycle(*, unloaded: bool):
    """Something fails while the model is on the device, and everything is unloaded then (or is not)."""
    yield from until_on_device()
    yield from step(9.0, "expect", 0.1, model="", outcome=Outcome.FAILED, error="too much")
    if unloaded:
        yield sample(9.5, None, reserved=RESERVED)
    yield CycleEnded(at=10.0, cycle=1, outcome=Outcome.FAILED, seconds=5.0)


def test_a_model_whose_own_steps_succeeded_has_not_failed_with_its_cycle():
    row = one(failed_cycle(unloaded=True))
    assert (row.outcome, row.cycle_outcome) == (Outcome.SUCCEEDED, Outcome.FAILED)


def test_the_clean_up_after_a_failed_cycle_is_an_unload_where_the_sample_tells_it():
    assert one(failed_cycle(unloaded=True)).after_unload == Station(allocated_bytes=0, reserved_bytes=RESERVED)
    assert one(failed_cycle(unloaded=False)).after_unload is None


def test_nothing_is_told_of_what_a_dead_worker_gave_back():
    story = list(failed_cycle(unloaded=True))
    died = WorkerExited(at=9.6, pid=17, reason="signal", detail="killed", expected=False)
    assert one(story[:-1], [died], story[-1:]).after_unload is None


def test_a_model_that_never_left_ram_says_so():
    row = one(step(1.0, "load", 1.0, after=sample(1.0, "cpu")))
    assert (row.device, row.was_on_device) == ("cuda:0", False)
    assert one(until_on_device()).was_on_device


def test_a_model_that_goes_from_device_to_device_has_the_figures_of_the_last_and_names_the_others():
    def moved(at, device):
        memory = sample(at, device, allocated=ALLOCATED, reserved=RESERVED)
        held = tuple(replace(each, device=device) for each in memory.devices)
        return step(at, "move", 0.1, after=replace(memory, devices=held))

    row = one(until_on_device(), moved(STARTED_AT + 12, "cuda:1"), moved(STARTED_AT + 13, "cuda:2"))
    assert (row.device, row.earlier_devices) == ("cuda:2", ("cuda:0", "cuda:1"))
    row = one(until_on_device(), moved(STARTED_AT + 12, "cuda:1"), moved(STARTED_AT + 13, "cuda:0"))
    assert (row.device, row.earlier_devices) == ("cuda:0", ("cuda:1",))
    assert json.loads(json.dumps(row.as_json()))["earlier_devices"] == ["cuda:1"]


def in_parts():
    """What the worker tells with a tenth of the parameters left in RAM."""
    here, there = model_on("cpu"), model_on("cuda:0")
    groups = (here.groups[0], *there.groups[1:])
    model = replace(there, residency=Residency.MIXED, groups=groups, buffer_bytes={"cuda:0": 128})
    told = sample(STARTED_AT + 9, "cuda:0", allocated=ALLOCATED // 2, reserved=RESERVED)
    return replace(told, models=(model,)), model


def test_a_model_in_parts_says_where_each_is_and_a_part_that_comes_back_is_no_arrival():
    told, model = in_parts()
    facts = {"from": "cuda:0", "to": "cpu"}
    back = step(STARTED_AT + 9, "move", 0.5, name="a part", after=told, facts=facts)
    arrived = one(until_on_device(), back)
    assert (arrived.lives, arrived.whereabouts, arrived.move_back_seconds) == (None, "on cuda:0", 0.5)
    assert arrived.on_device.allocated_bytes == ALLOCATED
    over = step(STARTED_AT + 10, "move", 0.25, name="a part", after=told, facts={"from": "cpu", "to": "cuda:0"})
    row = one(until_on_device(), over)
    assert (row.device, row.lives, row.whereabouts) == ("cuda:0", model.whereabouts, model.whereabouts)
    assert row.whereabouts.startswith("mixed: ")
    assert (row.on_device.allocated_bytes, row.as_json()["lives"]) == (ALLOCATED // 2, row.lives)


def test_the_times_of_a_model_that_goes_in_parts_are_sums_of_its_moves_of_the_cycle():
    told, _ = in_parts()
    start = until_on_device()

    def part(at, seconds, to):
        return step(STARTED_AT + at, "move", seconds, name="a part", after=told, facts={"to": to})

    parts = [part(9, 0.5, "cpu"), part(10, 0.25, "cuda:0"), part(11, 0.25, "cpu"), part(12, 1.0, "cuda:0")]
    row = one(start, *parts)
    assert (row.move_seconds, row.move_back_seconds) == (0.125 + 0.25 + 1.0, 0.5 + 0.25)

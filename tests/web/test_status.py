import json

from vramscope.memory.residue import PlaceResidue, Residue, ResidueMeasured
from vramscope.memory.snapshot import DeviceFacts, DriverMemory, DriverSampled
from vramscope.supervisor.state import RunState
from vramscope.web.status import status

from ..picture import (  # noqa: TID252 - tests are not packages
    ALLOCATED,
    PARAMETER_BYTES,
    PARAMETERS,
    STARTED_AT,
    TOTAL,
    USED,
    running,
    told,
    until_on_device,
)

NOW = STARTED_AT + 60


def shown(*stories, results=()):
    return json.loads(json.dumps(status(told(*stories).state, NOW, results)))


def test_what_is_not_known_is_null_or_empty():
    found = json.loads(json.dumps(status(RunState(started_at=STARTED_AT), NOW, [])))
    assert found.pop("version")
    assert found == {
        "now": NOW,
        "started_at": STARTED_AT,
        "uptime_seconds": 60.0,
        "plan": None,
        "reload": {"problem": None, "succeeded_at": None},
        "web_config_problem": None,
        "journal": None,
        "troubles": [],
        "worker": {"up": False, "pid": None, "backend": None, "reason": None, "versions": {}},
        "devices": [],
        "other_devices": [],
        "forecast_lost": None,
        "models": [],
        "residues": [],
        "running": None,
        "steps": [],
        "phases": [],
        "faults": [],
        "results": [],
    }


def test_a_device_carries_its_ledger_and_its_sources():
    (device,) = shown(until_on_device())["devices"]
    assert (device["device"], device["backend"], device["name"]) == ("cuda:0", "simulated", "simulated 12 GiB")
    assert (device["uuid"], device["pci_bus_id"], device["driver_error"]) == (None, None, None)
    assert sum(device["ledger"].values()) == device["total_bytes"] == TOTAL
    assert device["allocator"]["allocated_bytes"] == ALLOCATED
    assert device["driver"]["process_used_bytes"] == USED


def test_a_device_carries_its_ledger_in_order_and_why_its_figures_differ():
    (device,) = shown(until_on_device())["devices"]
    assert {each["owner"]: each["bytes"] for each in device["owners"]} == device["ledger"]
    assert [each["name"] for each in device["owners"]][:3] == ["parameters", "buffers", "allocator rounding"]
    assert all(each.keys() == {"from", "to", "bytes", "owner", "text"} for each in device["differences"])
    assert [each["owner"] for each in device["differences"]] == [
        None, "allocator_rounding", "allocator_cache", "cuda_context", "free",
    ]  # fmt: skip


def test_without_the_driver_the_allocator_is_still_explained():
    failed = DriverSampled(at=1.0, pid=17, devices={}, errors={"cuda:0": "GPU is lost"})
    (device,) = shown(until_on_device(), [failed])["devices"]
    assert device["owners"] is None
    assert [each["owner"] for each in device["differences"]] == [None, "allocator_rounding", "allocator_cache", None]


def test_what_a_model_left_behind_is_there_by_place_and_cause():
    place = PlaceResidue(where="cuda:0", causes={"live_tensors": 0, "allocator_cache": 512}, level_bytes=512)
    residue = Residue(model="qwen", after="unload", places=(place,))
    (found,) = shown(until_on_device(), [ResidueMeasured(at=1.0, residues=(residue,))])["residues"]
    assert (found["model"], found["after"]) == ("qwen", "unload")
    (told_of,) = found["places"]
    assert (told_of["where"], told_of["bytes"], told_of["growth_bytes"]) == ("cuda:0", 512, None)
    assert [(each["cause"], each["bytes"], each["own"]) for each in told_of["causes"]] == [
        ("allocator_cache", 512, True)
    ]


def test_what_nvml_lists_beside_the_workers_devices_is_told_apart():
    card = DeviceFacts(device="nvml:1", backend="nvml", name="NVIDIA T4", total_bytes=TOTAL)
    memory = DriverMemory(total_bytes=TOTAL, used_bytes=5)
    event = DriverSampled(at=1.0, pid=17, devices={"nvml:1": memory}, cards=(card,))
    found = shown(until_on_device(), [event])
    assert [each["device"] for each in found["devices"]] == ["cuda:0"]
    assert found["other_devices"] == [
        {
            "device": "nvml:1",
            "name": "NVIDIA T4",
            "uuid": None,
            "total_bytes": TOTAL,
            "used_bytes": 5,
            "driver_error": None,
        }
    ]


def test_rows_of_results_leave_their_sentences_out():
    assert shown(results=[{"model": "qwen", "differences": ["..."]}])["results"] == [{"model": "qwen"}]


def test_a_model_says_where_it_lives():
    (model,) = shown(until_on_device())["models"]
    assert (model["state"], model["parameters"], model["quantization"]) == ("device", PARAMETERS, None)
    assert model["places"] == [{"device": "cuda:0", "parameter_bytes": PARAMETER_BYTES, "buffer_bytes": 128}]
    assert {group["component"] for group in model["groups"]} == {"embedding", "attention", "mlp", "norm"}


def test_the_running_step_has_time_and_progress():
    step = shown(running())["running"]
    assert (step["step"], step["phase"], step["line"]) == ("move qwen", "copy", 14)
    assert step["elapsed_seconds"] == 30.0
    assert step["progress_ratio"] == 0.5


def test_progress_is_null_while_a_phase_does_not_count_bytes():
    step = shown(list(running())[:2])["running"]
    assert (step["bytes_total"], step["progress_ratio"]) == (None, None)


def test_steps_phases_and_plan_are_there_by_name():
    found = shown(until_on_device(), results=[{"model": "qwen"}])
    assert [step["step"] for step in found["steps"]] == ["tokenize qwen", "load qwen", "to the card"]
    assert found["steps"][0]["facts"]["tokens"] == 15
    assert found["phases"][1] == {
        "model": "qwen", "kind": "load", "phase": "resolve", "seconds": 0.25, "nbytes": None,
    }  # fmt: skip
    assert (found["plan"]["name"], found["plan"]["cycle"], found["plan"]["outcome"]) == ("qwen-cycle", 1, None)
    assert found["results"] == [{"model": "qwen"}]


def test_a_driver_that_fails_takes_the_ledger_away_and_says_why():
    failed = DriverSampled(at=1.0, pid=17, devices={}, errors={"cuda:0": "GPU is lost"})
    (device,) = shown(until_on_device(), [failed])["devices"]
    assert (device["ledger"], device["driver"], device["driver_error"]) == (None, None, "GPU is lost")
    assert device["total_bytes"] == TOTAL, "the worker has told it"


def test_a_step_that_is_meant_to_take_a_time_says_which():
    found = status(told(running()).state, NOW, [], {"move qwen": 30.0})
    assert found["running"]["target_seconds"] == 30.0
    assert status(told(running()).state, NOW, [])["running"]["target_seconds"] is None

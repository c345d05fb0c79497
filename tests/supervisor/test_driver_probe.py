"""What the sampler knows, told under the names that people know; and a real daemon's probe where there is no NVML."""

import asyncio
import logging
from dataclasses import replace

import pytest

from vramscope.devices.cards import Card
from vramscope.devices.told import Told
from vramscope.memory.snapshot import DeviceFacts, DriverMemory, DriverSampled
from vramscope.supervisor.driver_probe import ReasonLog, driver_sampled, watch_driver
from vramscope.supervisor.driver_sampler import Reading, Sampled
from vramscope.supervisor.state import WorkerState
from vramscope.supervisor.store import Store

NOW = 5000.0
ZERO = Card(index="0", uuid="GPU-a", name="A100", pci_bus_id="00000000:01:00.0")
ONE = Card(index="1", uuid="GPU-b", name="A100", pci_bus_id="00000000:02:00.0")
# torch counts the other way round.
CUDA = WorkerState(
    pid=17,
    up=True,
    backend="cuda",
    devices=(
        DeviceFacts(device="cuda:0", backend="cuda", name="A100", uuid="GPU-b"),
        DeviceFacts(device="cuda:1", backend="cuda", name="A100", uuid="GPU-a"),
    ),
)
SIMULATED = WorkerState(
    pid=17, up=True, backend="simulated", devices=(DeviceFacts(device="cuda:0", backend="simulated", name="x"),)
)


def reading(card: Card, used: int | None = 5, age: float = 0.0, reason: str = "") -> Reading:
    """What is known of a device that was asked `age` seconds ago; it failed where nothing is used."""
    memory = DriverMemory(total_bytes=100, used_bytes=used)
    return Reading(
        card=card,
        asked_at=NOW - age,
        answered_at=1000.0,
        pictured_at=999.0,
        told=None if used is None else Told(memory=memory, reason=reason),
        reason=reason,
        high_water_bytes=used and used + 1,
    )


def sampled(*readings: Reading, **more: object) -> Sampled:
    return replace(Sampled(readings=readings, cards=tuple(each.card for each in readings), looked_at=NOW), **more)


def test_devices_that_torch_uses_have_its_names_and_the_others_nvmls():
    event = driver_sampled(sampled(reading(ZERO, 1), reading(ONE, 2)), replace(CUDA, devices=CUDA.devices[:1]), {})
    assert {device: memory.used_bytes for device, memory in event.devices.items()} == {"nvml:0": 1, "cuda:0": 2}
    assert event.high_water_bytes == {"nvml:0": 2, "cuda:0": 3}
    assert [(each.device, each.backend, each.nvml_index) for each in event.cards] == [
        ("nvml:0", "nvml", "0"),
        ("cuda:0", "cuda", "1"),
    ]
    assert (event.pid, event.at, event.errors) == (17, 999.0, {})


def test_beside_simulated_devices_the_real_ones_keep_nvmls_names():
    assert set(driver_sampled(sampled(reading(ZERO), reading(ONE)), SIMULATED, {}).devices) == {"nvml:0", "nvml:1"}


def test_failed_device_is_an_error_and_no_value():
    event = driver_sampled(sampled(reading(ZERO), reading(ONE, None, reason="GPU is lost")), CUDA, {})
    assert set(event.devices) == {"cuda:1"}
    assert event.errors == {"cuda:0": "GPU is lost"}
    assert event.answered_at == {"cuda:0": 1000.0, "cuda:1": 1000.0}
    assert event.high_water_bytes == {"cuda:1": 6}


def test_device_that_answers_in_part_says_what_it_does_not_tell():
    event = driver_sampled(sampled(reading(ZERO, reason="not supported")), SIMULATED, {})
    assert event.errors == {"nvml:0": "not supported"}
    assert set(event.devices) == {"nvml:0"}


@pytest.mark.parametrize("age", [2.0, 4.0])
def test_silence_of_more_than_three_seconds_is_no_answer(age):
    waiting = sampled(reading(ZERO), reading(ONE, age=age), asking_since=NOW - age, question="nvml:1")
    event = driver_sampled(waiting, CUDA, {})
    assert bool(event.errors) == (age > 3)
    assert bool(event.devices) == (age < 3)
    if event.errors:
        assert event.errors["cuda:0"] == "NVML has not answered for 4 s (asked: nvml:1)"
        assert set(event.errors) == set(event.answered_at) == {"cuda:0", "cuda:1"}


def test_answer_to_a_question_of_a_minute_ago_is_not_true_now():
    late = sampled(reading(ZERO, age=60.0), asking_since=NOW, question="nvml:0")
    assert driver_sampled(late, SIMULATED, {}).devices == {}


def test_device_that_had_to_wait_for_many_others_is_not_silent():
    slow = sampled(reading(ZERO, age=13.0), asking_since=NOW - 0.1, question="nvml:71")
    assert driver_sampled(slow, SIMULATED, {}).errors == {}


def test_device_that_was_never_asked_is_neither_up_nor_down():
    unasked = Reading(card=ZERO, asked_at=NOW)
    event = driver_sampled(sampled(unasked), SIMULATED, {})
    assert (event.devices, event.errors) == ({}, {})


@pytest.mark.parametrize(
    ("worker", "state", "expected"),
    [
        (SIMULATED, {"failure": "mismatch"}, {"all": "mismatch"}),
        (SIMULATED, {"failure": "no library", "is_absent": True}, {}),
        (SIMULATED, {}, {}),
        (CUDA, {"failure": "mismatch"}, {"cuda:0": "mismatch", "cuda:1": "mismatch"}),
        (CUDA, {"failure": "gone", "is_absent": True}, {"cuda:0": "gone", "cuda:1": "gone"}),
        (CUDA, {}, {}),
    ],
)
def test_nvml_that_fails_as_a_whole_stands_at_every_device_that_is_known(worker, state, expected):
    assert driver_sampled(Sampled(**state), worker, {}).errors == expected


def test_start_that_hangs_is_told_before_any_device_is_known():
    hanging = Sampled(looked_at=NOW, asking_since=NOW - 9, question="nvmlInit")
    assert driver_sampled(hanging, SIMULATED, {}).errors == {"all": "NVML has not answered for 9 s (asked: nvmlInit)"}


def test_cuda_device_that_nvml_does_not_list_says_so():
    event = driver_sampled(sampled(reading(ZERO)), CUDA, {})
    assert event.errors == {"cuda:0": "none of the 1 devices that NVML lists is this one"}


def event(**errors: str) -> DriverSampled:
    return DriverSampled(
        at=1.0, pid=17, devices={}, errors={name.replace("_", ":"): why for name, why in errors.items()}
    )


def test_reason_is_logged_once_per_change_and_silence_once_however_long(caplog):
    log = ReasonLog()
    silence = "NVML has not answered for {} s"
    with caplog.at_level(logging.INFO):
        for told in (
            event(nvml_0="lost", nvml_1="lost"),
            event(nvml_0="lost", nvml_1="lost"),
            event(nvml_0=silence.format(3), nvml_1="lost"),
            event(nvml_0=silence.format(4), nvml_1="lost"),
            event(),
            event(),
        ):
            log.tell(told, Sampled())
    assert [(each.message, each.devices, getattr(each, "reason", "")) for each in caplog.records] == [
        ("nvml_does_not_tell", "nvml:0,nvml:1", "lost"),
        ("nvml_does_not_tell", "nvml:0", "NVML has not answered for 3 s"),
        ("nvml_tells_again", "nvml:0,nvml:1", ""),
    ]


def test_machine_without_nvml_is_one_line_in_the_log_and_no_series(caplog):
    """On a machine with a driver the devices stand in its place."""
    events: list[DriverSampled] = []

    async def body() -> None:
        enough = asyncio.Event()

        def publish(event: DriverSampled) -> None:
            events.append(event)
            if len(events) == 3:
                enough.set()

        probe = asyncio.create_task(watch_driver(Store(1.0), publish, {}))
        await asyncio.wait_for(enough.wait(), 60)
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)

    with caplog.at_level(logging.INFO):
        asyncio.run(body())
    lines = [each.message for each in caplog.records]
    if events[-1].cards:
        assert "no_nvml_no_driver_to_ask" not in lines
    else:
        assert events[-1].errors == {}
        assert lines.count("no_nvml_no_driver_to_ask") == 1

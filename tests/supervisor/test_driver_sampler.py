"""The sampler's thread over a machine that breaks and mends while it runs."""

import time

import pytest
from tests.devices.fake_nvml import (
    DRIVER_NOT_LOADED,
    GIB,
    GPU_IS_LOST,
    LIBRARY_NOT_FOUND,
    MIB,
    SELF,
    UNKNOWN_ERROR,
    Console,
    FakeNvml,
    Gpu,
    build,
    console_of,
)

CODE = """
import os, threading, time
from vramscope.devices.own import ProcessNames
from vramscope.supervisor.driver_sampler import DriverSampler
pictures = []
sampler = DriverSampler(lambda: (os.getpid(),), ProcessNames(), lambda: pictures.append(time.monotonic()))
began = time.monotonic()
sampler.start()
def used():
    return {each.card.index: each.told and each.told.memory.used_bytes for each in sampler.look().readings}
def until(condition):
    end = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < end, sampler.look()
        time.sleep(0.02)
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory):
    return build(tmp_path_factory.mktemp("libraries"))


@pytest.fixture
def machine(libraries, tmp_path) -> FakeNvml:
    return FakeNvml(libraries, tmp_path)


@pytest.fixture
def console(machine):
    machine.set(Gpu(compute=[(SELF, 300 * MIB)]))
    with console_of(machine, CODE) as console:
        yield console


def wait_used(console: Console, expected: dict[str, int | None]) -> None:
    console.run(f"until(lambda: used() == {expected!r})")


def test_one_start_serves_all_rounds_and_pictures_come_once_a_second(machine, console):
    console.run("until(lambda: len(pictures) >= 4)")
    assert console.run("pictures[3] - began") >= 2.5
    assert machine.inits() == 1
    [reading] = console.run("[vars(each.told.memory) for each in sampler.look().readings]")
    assert (reading["process_used_bytes"], reading["process_used_source"]) == (300 * MIB, "driver")


def test_peak_between_two_pictures_is_not_missed(machine, console):
    wait_used(console, {"0": GIB})
    machine.set(Gpu(used=9 * GIB))
    console.run("until(lambda: [each.high_water_bytes for each in sampler.look().readings] == [9 << 30])")
    machine.set(Gpu())
    console.run("count = len(pictures)\nuntil(lambda: len(pictures) > count + 1)")
    assert console.run("[used(), sampler.look().readings[0].high_water_bytes]") == [{"0": GIB}, 9 * GIB]


@pytest.mark.parametrize("code", [DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND, UNKNOWN_ERROR])
def test_nvml_that_comes_up_later_is_found(machine, code):
    machine.set(init=code)
    with console_of(machine, CODE) as console:
        console.run("until(lambda: sampler.look().failure)")
        assert console.run("[used(), sampler.look().is_absent]") == [{}, code == LIBRARY_NOT_FOUND]
        machine.set(Gpu())
        wait_used(console, {"0": GIB})
        assert console.run("sampler.look().failure") == ""


def test_device_whose_access_was_revoked_keeps_its_place_and_nothing_else(machine, console):
    wait_used(console, {"0": GIB})
    machine.set(Gpu(handle=UNKNOWN_ERROR, code=UNKNOWN_ERROR), init=UNKNOWN_ERROR)
    wait_used(console, {"0": None})
    console.run("until(lambda: sampler.look().failure)")
    [reason] = console.run("[each.reason for each in sampler.look().readings]")
    assert "restart the container" in reason
    assert console.run("sampler.look().readings[0].answered_at") > 0
    machine.set(Gpu())
    wait_used(console, {"0": GIB})


def test_lost_gpu_that_was_reset_is_back_after_nvml_was_started_anew(machine, console):
    wait_used(console, {"0": GIB})
    machine.set(Gpu(), Gpu(uuid="GPU-second"))
    console.run("sampler._listed_at = float('-inf')")
    wait_used(console, {"0": GIB, "1": GIB})
    machine.set(Gpu(), Gpu(handle=GPU_IS_LOST, code=GPU_IS_LOST))
    wait_used(console, {"0": GIB, "1": None})
    lost = "[(each.card.uuid, 'GPU is lost' in each.reason) for each in sampler.look().readings][1]"
    console.run(f"until(lambda: {lost} == ('GPU-second', True))")
    machine.set(Gpu(), Gpu(uuid="GPU-second"))
    wait_used(console, {"0": GIB, "1": GIB})
    assert machine.inits() > 1


def test_unplugged_gpu_is_missed_and_a_dissolved_mig_instance_is_not(machine):
    machine.set(Gpu(), Gpu(), Gpu(uuid="MIG-a", of=0, number=0))
    with console_of(machine, CODE) as console:
        wait_used(console, {"0:0": GIB, "1": GIB})
        machine.set(Gpu())
        console.run("sampler._listed_at = float('-inf')")
        wait_used(console, {"0": GIB, "1": None})
        assert "no longer lists" in console.run("sampler.look().readings[1].reason")


def test_gpus_behind_an_unplugged_one_have_another_place_and_are_not_missed(machine):
    first, second, third = (Gpu(uuid=f"GPU-{name}") for name in "abc")
    machine.set(first, second, third)
    with console_of(machine, CODE) as console:
        wait_used(console, {"0": GIB, "1": GIB, "2": GIB})
        machine.set(first, third)
        console.run("sampler._listed_at = float('-inf')")
        wait_used(console, {"0": GIB, "1": GIB})
        assert console.run("[each.card.uuid for each in sampler.look().readings]") == ["GPU-a", "GPU-c"]


def test_call_that_hangs_costs_one_thread_and_is_over_when_it_answers(machine, console):
    wait_used(console, {"0": GIB})
    machine.set(Gpu(used=2 * GIB), sleep=60_000)
    console.run("until(lambda: sampler.look().asking_since and time.monotonic() - sampler.look().asking_since > 1)")
    assert console.run("[sampler.look() and threading.active_count() for _ in range(20)]") == [2] * 20
    assert console.run("sampler.look().question") == "nvml:0"
    machine.set(Gpu(used=3 * GIB))
    wait_used(console, {"0": 3 * GIB})


def test_thread_that_hangs_does_not_keep_anybody_from_ending(machine):
    machine.set(Gpu(), sleep=60_000)
    with console_of(machine, CODE) as console:
        console.run("until(lambda: sampler.look().readings)")
        assert console.run("[each.told for each in sampler.look().readings]") == [None]
        began = time.monotonic()
        console.run("sampler.stop(0.2)")
        assert console.run("sampler._thread.is_alive() and sampler._thread.daemon") is True
        assert time.monotonic() - began < 50


def test_surprise_of_the_library_is_a_reason_and_not_the_end(console):
    wait_used(console, {"0": GIB})
    console.run("kept = sampler._pids; sampler._pids = lambda: 1 / 0")
    console.run("until(lambda: 'division by zero' in sampler.look().failure)")
    console.run("sampler._pids = kept")
    wait_used(console, {"0": GIB})


def test_dozens_of_devices_leave_most_of_a_core(machine):
    machine.set(*(Gpu(used=index * MIB) for index in range(72)))
    with console_of(machine, CODE) as console:
        console.run("until(lambda: len(pictures) >= 2)")
        assert console.run("list(used().items())") == [[str(index), index * MIB] for index in range(72)]
        console.run("began, busy = time.monotonic(), time.process_time()\nuntil(lambda: len(pictures) >= 5)")
        assert console.run("(time.process_time() - busy) / (time.monotonic() - began)") < 0.5

"""What the driver says about a CUDA device is part of its snapshot: of the right device, of the same moment, and never
waited for.
"""

import time

import pytest

pytestmark = pytest.mark.cuda_stub

MIB = 1 << 20
GIB = 1 << 30
# The devices in the other order than NVML's: torch's cuda:0 is NVML's 1.
PRODUCT = """
import os, threading, time
import torch
from vramscope.devices.choice import choose_devices
from vramscope.settings import DeviceMode, SimulationSettings
backend, reason, devices = choose_devices(DeviceMode.AUTO, SimulationSettings())
first, second = devices.values()
def memory(device):
    snapshot = device.snapshot()
    return snapshot.allocator.reserved_bytes, vars(snapshot.driver) if snapshot.driver else None
"""
USED = ("used_bytes", "process_used_bytes")


@pytest.fixture(scope="module")
def product(shared_machine):
    shared_machine.configure(devices=2, context_mib=113, reserved_mib=250, data="discard")
    shared_machine.configure(**{"total_mib.0": 12288, "total_mib.1": 8192, "name.1": "Second", "baseline_mib.0": 7})
    return shared_machine.console(PRODUCT, CUDA_VISIBLE_DEVICES="1,0")


@pytest.fixture
def healthy(shared_machine, product):
    """The process, on a machine whose NVML answers."""
    shared_machine.mend()
    shared_machine.configure(processes="listed")
    product.run("held = None; first.empty_cache()")
    return product


def test_auto_takes_cuda_and_says_why(healthy):
    assert healthy.run("[backend, reason, list(devices)]") == [
        "cuda",
        "torch sees 2 CUDA device(s)",
        ["cuda:0", "cuda:1"],
    ]


def test_each_device_is_found_in_nvml_by_its_identity_not_by_its_number(healthy):
    assert healthy.run("[device.facts().name for device in devices.values()]") == ["Second", "Stub GeForce RTX 3060"]
    totals = [healthy.run(f"memory({device})")[1]["total_bytes"] for device in ("first", "second")]
    assert totals == [8 * GIB, 12 * GIB]
    by_address = "dataclasses.replace(device.facts(), uuid='')"
    healthy.run("import dataclasses\nfrom vramscope.devices.driver import Driver")
    assert healthy.run(f"[Driver({{}}).sample({by_address}, 0).total_bytes for device in devices.values()]") == totals


def test_a_device_without_a_context_is_described_and_stays_without_one(healthy):
    reserved, driver = healthy.run("memory(second)")
    assert (reserved, driver["process_used_bytes"]) == (0, None)
    assert (driver["used_bytes"], driver["reserved_bytes"]) == (7 * MIB, 250 * MIB)
    assert healthy.run("second.is_open") is False


def test_allocator_and_driver_are_of_the_same_moment(healthy):
    healthy.run("held = first.upload(torch.empty(1000 << 20, dtype=torch.uint8))")
    reserved, driver = healthy.run("memory(first)")
    assert reserved == 1000 * MIB
    assert [driver[key] for key in USED] == [(1000 + 113) * MIB] * 2
    assert driver["total_bytes"] == sum(driver[f"{part}_bytes"] for part in ("used", "free", "reserved"))


@pytest.mark.parametrize(
    ("slow_function", "seconds"),
    [("nvmlDeviceGetMemoryInfo", 0.15), ("nvmlDeviceGetComputeRunningProcesses", 0.8)],
    ids=["before the device's use is known", "between that and the process's own"],
)
def test_memory_taken_while_nvml_is_asked_is_not_put_down_to_others(shared_machine, healthy, slow_function, seconds):
    healthy.run("first.open()\nfrom vramscope.devices.driver import Driver")
    shared_machine.fail(slow_function, "slow:0.3")
    healthy.run(f"""
answers = []
asking = threading.Thread(target=lambda: answers.append(Driver(os.environ).sample(first.facts(), os.getpid())))
asking.start()
time.sleep({seconds})
held = first.upload(torch.empty(500 << 20, dtype=torch.uint8))
asking.join()
""")
    assert healthy.run("[answers[0].used_bytes, answers[0].process_used_bytes]") == [(500 + 113) * MIB] * 2


@pytest.mark.parametrize("told", ["unsized", "hidden"])
def test_own_use_is_what_was_measured_where_the_driver_does_not_tell_it(shared_machine, healthy, told):
    healthy.run("first.open()\nheld = first.upload(torch.empty(40 << 20, dtype=torch.uint8))")
    shared_machine.configure(processes=told, **{"baseline_mib.1": 9})
    _, driver = healthy.run("memory(first)")
    shared_machine.configure(**{"baseline_mib.1": 0})
    assert [driver[key] for key in USED] == [(40 + 113 + 9) * MIB, (40 + 113) * MIB]
    assert driver["process_used_source"] == "measured"


def test_own_use_is_unknown_where_even_the_opening_could_not_be_measured(shared_machine):
    shared_machine.configure(processes="hidden")
    blind = shared_machine.console(PRODUCT, CUDA_VISIBLE_DEVICES="1,0")
    shared_machine.fail("nvml*", "GPU_IS_LOST")
    blind.run("first.open()")
    shared_machine.mend()
    _, driver = blind.run("memory(first)")
    blind.kill()
    assert (driver["process_used_bytes"], driver["process_used_source"]) == (None, "")


def test_failing_nvml_leaves_the_allocator_known(shared_machine, healthy):
    healthy.run("held = first.upload(torch.empty(30 << 20, dtype=torch.uint8))")
    shared_machine.fail("nvml*", "GPU_IS_LOST")
    assert healthy.run("memory(first)") == [30 * MIB, None]


def test_hanging_nvml_costs_half_a_second_once(shared_machine, healthy):
    healthy.run("held = first.upload(torch.empty(30 << 20, dtype=torch.uint8))")
    shared_machine.fail("nvmlDeviceGetMemoryInfo", "hang:6")
    began = time.monotonic()
    assert healthy.run("[memory(first) for _ in range(20)]") == [[30 * MIB, None]] * 20
    assert time.monotonic() - began < 5, "half a second, and what a busy machine adds"
    shared_machine.mend()
    healthy.run(
        "end = time.monotonic() + 50\nwhile memory(first)[1] is None and time.monotonic() < end: time.sleep(0.05)"
    )
    assert healthy.run("memory(first)")[1]["process_used_bytes"] == (30 + 113) * MIB

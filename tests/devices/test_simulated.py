import pytest
import torch
from tests.devices.contract import MIB, Holder

from vramscope.devices.simulated import SHORTEST_PAUSE_SECONDS, SimulatedCard, SimulatedDevice
from vramscope.errors import OutOfMemoryError

CONTEXT_BYTES = 113 * MIB


def card(**changes):
    return SimulatedCard(**{"capacity_bytes": 1024 * MIB, "context_bytes": CONTEXT_BYTES} | changes)


@pytest.fixture
def naps():
    """What the device slept, in seconds."""
    return []


def paced(naps, bandwidth_bytes_per_second):
    return SimulatedDevice("cuda:0", card(bandwidth_bytes_per_second=bandwidth_bytes_per_second), naps.append)


def test_a_context_takes_its_size_when_the_device_is_opened():
    device = SimulatedDevice("cuda:0", card())
    assert device.snapshot().driver.used_bytes == 0
    device.open()
    driver = device.snapshot().driver
    assert (driver.used_bytes, driver.process_used_bytes) == (CONTEXT_BYTES, CONTEXT_BYTES)
    assert device.snapshot().allocator.reserved_bytes == 0


def test_a_process_is_its_context_and_what_its_allocator_reserved():
    device = SimulatedDevice("cuda:0", card())
    Holder(device).take(5 * MIB)
    assert device.snapshot().driver.process_used_bytes == CONTEXT_BYTES + 20 * MIB


def test_other_processes_count_as_used_but_not_by_this_process():
    device = SimulatedDevice("cuda:0", card(other_bytes=300 * MIB))
    device.open()
    driver = device.snapshot().driver
    assert driver.used_bytes == CONTEXT_BYTES + 300 * MIB
    assert driver.process_used_bytes == CONTEXT_BYTES
    assert driver.free_bytes == 1024 * MIB - driver.used_bytes


def test_a_device_without_room_for_its_context_stays_closed():
    device = SimulatedDevice("cuda:0", card(other_bytes=1000 * MIB))
    before = device.snapshot()
    for attempt in (device.open, lambda: device.upload(torch.empty(1))):
        with pytest.raises(OutOfMemoryError, match=rf"{24 * MIB} bytes free and a context needs {CONTEXT_BYTES}"):
            attempt()
    assert not device.is_open
    assert device.snapshot() == before


def test_context_and_other_processes_leave_less_for_tensors():
    device = SimulatedDevice("cuda:0", card(other_bytes=500 * MIB))
    holder = Holder(device)
    holder.take((1024 - 500 - 113 - 1) * MIB)
    with pytest.raises(OutOfMemoryError):
        holder.take(2 * MIB)
    assert holder.allocated_bytes == (1024 - 500 - 113 - 1) * MIB


def test_a_copy_takes_its_bytes_over_the_bandwidth(naps):
    device = paced(naps, 100 * MIB)
    held = device.upload(torch.empty(10 * MIB, dtype=torch.uint8))
    assert naps == [pytest.approx(0.1)]
    device.download(held, held.tensor)
    assert naps == [pytest.approx(0.1)] * 2


def test_short_copies_are_paced_together(naps):
    device = paced(naps, 100 * MIB)
    each = torch.empty(MIB // 4, dtype=torch.uint8)
    seconds = 0.25 / 100
    for _ in range(5):
        device.upload(each)
    assert naps == [pytest.approx(2 * seconds)] * 2
    assert 2 * seconds >= SHORTEST_PAUSE_SECONDS
    device.synchronize()
    assert sum(naps) == pytest.approx(5 * seconds)


def test_synchronizing_with_nothing_owed_takes_no_time(naps):
    device = paced(naps, 100 * MIB)
    device.synchronize()
    assert naps == []


def test_without_a_bandwidth_copies_take_no_time(naps):
    device = paced(naps, 0)
    held = device.upload(torch.empty(10 * MIB, dtype=torch.uint8))
    device.download(held, held.tensor)
    device.synchronize()
    assert naps == []


def test_a_request_that_fails_takes_no_time(naps):
    device = paced(naps, 100 * MIB)
    with pytest.raises(OutOfMemoryError):
        device.upload(torch.empty(1, dtype=torch.uint8).expand(2048 * MIB))
    device.synchronize()
    assert naps == []


def test_it_says_that_it_is_simulated():
    facts = SimulatedDevice("cuda:3", card()).facts()
    assert facts.backend == "simulated"
    assert facts.name == "simulated 1.00 GiB"
    assert facts.uuid == ""
    assert facts.device == "cuda:3"

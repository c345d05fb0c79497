from dataclasses import replace

from vramscope.collectors.ledger import Ledger
from vramscope.memory.snapshot import DriverMemory, DriverSampled

from ..picture import READY, RESERVED, TOTAL, back_and_gone, sample, until_on_device  # noqa: TID252 - tests are not packages


def owners(text):
    return {line.split('owner="')[1].split('"')[0]: float(line.split()[-1]) for line in text.splitlines()}


def test_the_owners_add_up_to_the_total_at_every_moment(page):
    told = 0
    for event in [*until_on_device(), *back_and_gone()]:
        if text := page.of(Ledger, [event]):
            told += 1
            assert sum(owners(text).values()) == TOTAL
            assert min(owners(text).values()) >= 0
    assert told > 5


def test_a_device_of_unknown_size_has_no_ledger(page):
    unknown = sample(1.0, "cuda:0", allocated=512, reserved=RESERVED)
    unknown = replace(unknown, devices=tuple(replace(device, driver=None) for device in unknown.devices))
    assert page.of(Ledger, [unknown]) == ""


def test_without_the_own_process_context_and_others_are_one_owner(page):
    real = sample(1.0, "cuda:0", allocated=512, reserved=RESERVED)
    real = replace(real, devices=tuple(replace(device, driver=None) for device in real.devices))
    driver = DriverMemory(total_bytes=TOTAL, used_bytes=RESERVED + 1000, free_bytes=TOTAL - RESERVED - 1000)
    found = owners(page.of(Ledger, [READY, real, DriverSampled(at=1.0, pid=17, devices={"cuda:0": driver})]))
    assert found["outside_allocator"] == 1000
    assert "cuda_context" not in found

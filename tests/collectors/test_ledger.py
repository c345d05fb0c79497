from dataclasses import replace

from vramscope.collectors.ledger import Ledger
from vramscope.memory.snapshot import DriverMemory, DriverSampled

from ..picture import ALLOCATED, READY, RESERVED, TOTAL, back_and_gone, sample, until_on_device  # noqa: TID252 - tests are not packages


def owners(text):
    return {line.split('owner="')[1].split('"')[0]: float(line.split()[-1]) for line in text.splitlines()}


def _without_driver():
    """What a worker tells whose driver does not answer it."""
    told = sample(1.0, "cuda:0", allocated=ALLOCATED, reserved=RESERVED)
    return replace(told, devices=tuple(replace(device, driver=None) for device in told.devices))


def test_the_owners_add_up_to_the_total_at_every_moment(page):
    told = 0
    for event in [*until_on_device(), *back_and_gone()]:
        if text := page.of(Ledger, [event]):
            told += 1
            assert sum(owners(text).values()) == TOTAL
            assert min(owners(text).values()) >= 0
    assert told > 5


def test_a_device_of_unknown_size_has_no_ledger(page):
    assert page.of(Ledger, [_without_driver()]) == ""


def test_figures_that_do_not_fit_together_are_no_ledger(page):
    """A driver that counts less as used than PyTorch has reserved leaves no room for the context and others."""
    odd = DriverMemory(total_bytes=TOTAL, used_bytes=RESERVED - 1)
    told = DriverSampled(at=1.0, pid=17, devices={"cuda:0": odd})
    assert page.of(Ledger, [READY, _without_driver(), told]) == ""


def test_what_a_driver_keeps_and_does_not_tell_is_absent(page):
    driver = DriverMemory(total_bytes=TOTAL, used_bytes=RESERVED + 1000)
    told = DriverSampled(at=1.0, pid=17, devices={"cuda:0": driver})
    assert "driver_reserved" not in owners(page.of(Ledger, [READY, _without_driver(), told]))


def test_without_the_own_process_context_and_others_are_one_owner(page):
    real = _without_driver()
    driver = DriverMemory(total_bytes=TOTAL, used_bytes=RESERVED + 1000, free_bytes=TOTAL - RESERVED - 1000)
    found = owners(page.of(Ledger, [READY, real, DriverSampled(at=1.0, pid=17, devices={"cuda:0": driver})]))
    assert found["outside_allocator"] == 1000
    assert "cuda_context" not in found

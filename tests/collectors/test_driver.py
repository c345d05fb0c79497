from vramscope.collectors.driver import Driver
from vramscope.memory.snapshot import DriverMemory, DriverSampled

from ..picture import READY  # noqa: TID252 - tests are not packages


def test_what_the_driver_does_not_tell_is_absent(page):
    told = DriverSampled(
        at=1.0, pid=17, devices={"cuda:0": DriverMemory(total_bytes=100, used_bytes=40, free_bytes=60)}
    )
    text = page.of(Driver, [READY, told])
    assert "vramscope_nvml_used_bytes" in text
    assert "process_used" not in text
    assert "vramscope_nvml_reserved_bytes" not in text


def test_a_device_whose_driver_failed_is_down_and_has_no_numbers(page):
    good = DriverSampled(at=1.0, pid=17, devices={"cuda:0": DriverMemory(total_bytes=100), "cuda:1": DriverMemory()})
    bad = DriverSampled(
        at=2.0, pid=17, devices={"cuda:0": DriverMemory(total_bytes=100)}, errors={"cuda:1": "GPU is lost"}
    )
    text = page.of(Driver, [READY, good, bad])
    assert 'vramscope_nvml_up{device="cuda:0"} 1.0' in text
    assert 'vramscope_nvml_up{device="cuda:1"} 0.0' in text
    assert text.count('device="cuda:1"') == 1


def test_a_device_that_nobody_asked_about_is_neither_up_nor_down(page):
    assert page.of(Driver) == ""

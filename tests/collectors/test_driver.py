from vramscope.collectors.driver import Driver
from vramscope.memory.snapshot import DeviceFacts, DriverMemory, DriverSampled

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


def test_device_that_answers_in_part_is_up(page):
    told = DriverSampled(
        at=1.0, pid=17, devices={"nvml:0": DriverMemory(process_used_bytes=7)}, errors={"nvml:0": "not supported"}
    )
    text = page.of(Driver, [READY, told])
    assert 'vramscope_nvml_up{device="nvml:0"} 1.0' in text
    assert "total" not in text
    assert 'vramscope_nvml_process_used_bytes{device="nvml:0"} 7.0' in text


def test_own_measurement_is_told_from_the_drivers_word(page):
    def own(source: str) -> DriverMemory:
        return DriverMemory(process_used_bytes=7, process_used_source=source)

    devices = {"nvml:0": own("measured"), "nvml:1": own("namespace"), "nvml:2": own("driver"), "nvml:3": DriverMemory()}
    text = page.of(Driver, [READY, DriverSampled(at=1.0, pid=17, devices=devices)])
    found = [line for line in text.splitlines() if "process_used_measured" in line]
    assert [line.partition("{")[2] for line in found] == [
        'device="nvml:0"} 1.0',
        'device="nvml:1"} 0.0',
        'device="nvml:2"} 0.0',
    ]


def test_last_answer_stays_while_the_values_are_gone(page):
    silent = DriverSampled(at=9.0, pid=17, devices={}, errors={"nvml:0": "silent"}, answered_at={"nvml:0": 5.0})
    assert page.of(Driver, [READY, silent]).splitlines() == [
        'vramscope_nvml_up{device="nvml:0"} 0.0',
        'vramscope_nvml_last_answer_timestamp_seconds{device="nvml:0"} 5.0',
    ]


def test_dozens_of_devices_stand_in_the_order_of_their_numbers(page):
    devices = {f"nvml:{index}": DriverMemory(used_bytes=index) for index in range(72)}
    told = DriverSampled(at=1.0, pid=17, devices=devices, high_water_bytes={"nvml:10": 3, "nvml:9": 4, "nvml:0:1": 5})
    text = page.of(Driver, [READY, told])
    used = [line.split()[1] for line in text.splitlines() if line.startswith("vramscope_nvml_used_bytes")]
    assert used == [f"{index}.0" for index in range(72)]
    water = [line.split()[1] for line in text.splitlines() if "high_water" in line]
    assert water == ["5.0", "4.0", "3.0"]


def test_card_that_nvml_lists_no_longer_is_gone(page):
    card = DeviceFacts(device="nvml:0", backend="nvml", name="A100")
    before = DriverSampled(at=1.0, pid=17, devices={"nvml:0": DriverMemory(used_bytes=1)}, cards=(card,))
    after = DriverSampled(at=2.0, pid=17, devices={})
    assert page.of(Driver, [READY, before, after]) == ""

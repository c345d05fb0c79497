from dataclasses import replace

from vramscope.collectors.device import DeviceMetrics
from vramscope.memory.snapshot import DeviceFacts, DriverSampled

from ..picture import READY  # noqa: TID252 - tests are not packages


def test_a_real_device_is_identified(page):
    card = DeviceFacts(
        device="cuda:0", backend="cuda", name="NVIDIA GeForce RTX 3060", uuid="GPU-1234", pci_bus_id="00000000:01:00.0"
    )
    text = page.of(DeviceMetrics, [replace(READY, backend="cuda", devices=(card,))])
    assert 'backend="cuda"' in text
    assert 'uuid="GPU-1234"' in text
    assert 'pci_bus_id="00000000:01:00.0"' in text
    assert 'nvml_index=""' in text


def test_a_simulated_device_says_so_in_backend_and_name(page):
    text = page.of(DeviceMetrics, [READY])
    assert 'backend="simulated"' in text
    assert 'name="simulated' in text


def test_card_that_only_the_driver_tells_of_stands_beside_the_workers(page):
    instance = DeviceFacts(device="nvml:3:0", backend="nvml", name="A100 MIG 1g.5gb", nvml_index="3:0")
    told = DriverSampled(at=1.0, pid=17, devices={}, cards=(instance,))
    text = page.of(DeviceMetrics, [READY, told])
    assert text.count("vramscope_device_info{") == 2
    assert 'device="nvml:3:0",name="A100 MIG 1g.5gb",nvml_index="3:0"' in text


def test_place_in_nvmls_list_is_told_of_a_cuda_device(page):
    card = DeviceFacts(device="cuda:0", backend="cuda", name="A100", uuid="GPU-1")
    told = DriverSampled(at=1.0, pid=17, devices={}, cards=(replace(card, nvml_index="7"),))
    text = page.of(DeviceMetrics, [replace(READY, backend="cuda", devices=(card,)), told])
    assert text.count("vramscope_device_info{") == 1
    assert 'nvml_index="7"' in text

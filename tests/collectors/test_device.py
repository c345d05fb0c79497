from dataclasses import replace

from vramscope.collectors.device import DeviceMetrics
from vramscope.memory.snapshot import DeviceFacts

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

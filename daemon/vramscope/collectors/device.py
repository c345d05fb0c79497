"""The devices that the worker uses, and those that the driver lists."""

from collections.abc import Iterable

from prometheus_client.core import Metric

from vramscope.collectors._frame import CollectorFactory, Sources, info
from vramscope.memory.snapshot import device_order


class DeviceMetrics:
    """vramscope_device_info. A simulated device says so in its backend and in its name."""

    def __init__(self, sources: Sources) -> None:
        self._state = sources.state

    def collect(self) -> Iterable[Metric]:
        state = self._state()
        # A CUDA device is among the cards, too, with its place in NVML's list: 3, or 3:0 for a MIG instance of GPU 3.
        devices = {each.device: each for each in (*state.worker.devices, *state.cards)}
        yield info(
            "vramscope_device",
            "A device that the worker uses (backend cuda or simulated) or that only the driver tells of (nvml), "
            "with its name and identifiers; always 1.",
            [
                {
                    "device": name,
                    "backend": device.backend,
                    "name": device.name,
                    "uuid": device.uuid,
                    "pci_bus_id": device.pci_bus_id,
                    "nvml_index": device.nvml_index,
                }
                for name, device in sorted(devices.items(), key=lambda item: device_order(item[0]))
            ],
        )


COLLECTOR = CollectorFactory(name="device", create=DeviceMetrics)

"""The devices that the worker uses."""

from collections.abc import Iterable

from prometheus_client.core import Metric

from vramscope.collectors._frame import CollectorFactory, Sources, info


class DeviceMetrics:
    """vramscope_device_info. A simulated device says so in its backend and in its name."""

    def __init__(self, sources: Sources) -> None:
        self._state = sources.state

    def collect(self) -> Iterable[Metric]:
        yield info(
            "vramscope_device",
            "A device that the worker uses: its backend (cuda or simulated), name and identifiers; always 1.",
            [
                {
                    "device": device.device,
                    "backend": device.backend,
                    "name": device.name,
                    "uuid": device.uuid,
                    "pci_bus_id": device.pci_bus_id,
                    # NVML counts cards in another order than torch; until the two are matched it is not known.
                    "nvml_index": "",
                }
                for device in self._state().worker.devices
            ],
        )


COLLECTOR = CollectorFactory(name="device", create=DeviceMetrics)

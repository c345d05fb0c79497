"""What the driver (NVML) says about each device; a simulated device answers in its place."""

from collections.abc import Iterable

from prometheus_client.core import Metric

from vramscope.collectors._frame import CollectorFactory, Sources, gauge
from vramscope.supervisor.state import RunState

# A reader of one metric must not take a simulation for a card.
SIMULATED = "; simulated where vramscope_device_info has backend simulated."
BYTES = {
    "total": "How much VRAM the device has, in bytes.",
    "used": "VRAM that all processes on the device take together, in bytes.",
    "free": "VRAM that nobody takes, in bytes.",
    "reserved": "VRAM that the driver keeps for itself, in bytes.",
    "process_used": "VRAM that the worker process takes, with its CUDA context, in bytes; absent where unknown.",
}


class Driver:
    """vramscope_nvml_*."""

    def __init__(self, sources: Sources) -> None:
        self._state = sources.state

    def collect(self) -> Iterable[Metric]:
        state = self._state()
        yield gauge(
            "vramscope_nvml_up",
            "1 if the driver answered the last question about this device's memory, 0 if it failed" + SIMULATED,
            ["device"],
            [((device,), float(answered)) for device, answered in sorted(_answers(state).items())],
        )
        for what, documentation in BYTES.items():
            yield gauge(
                f"vramscope_nvml_{what}_bytes",
                documentation.rstrip(".") + SIMULATED,
                ["device"],
                [((device,), getattr(memory, f"{what}_bytes")) for device, memory in sorted(state.driver.items())],
            )


def _answers(state: RunState) -> dict[str, bool]:
    """Device to whether the driver answered; a device that nobody has asked about yet is left out."""
    return dict.fromkeys(state.driver, True) | dict.fromkeys(state.driver_errors, False)


COLLECTOR = CollectorFactory(name="driver", create=Driver)

"""What the driver (NVML) says about each device; a simulated device answers in its place."""

from collections.abc import Iterable, Mapping
from typing import TypeVar

from prometheus_client.core import Metric

from vramscope.collectors._frame import CollectorFactory, Sources, gauge
from vramscope.memory.snapshot import MEASURED, device_order
from vramscope.supervisor.state import RunState

Value = TypeVar("Value")

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
            "1 if the driver answered the last question about this device, 0 if it failed (device all: if it did not "
            "even tell of its devices)" + SIMULATED,
            ["device"],
            [((device,), float(is_up)) for device, is_up in _in_order(_answers(state))],
        )
        for what, documentation in BYTES.items():
            yield gauge(
                f"vramscope_nvml_{what}_bytes",
                documentation.rstrip(".") + SIMULATED,
                ["device"],
                [((device,), getattr(memory, f"{what}_bytes")) for device, memory in _in_order(state.driver)],
            )
        yield gauge(
            "vramscope_nvml_process_used_measured",
            "1 if process_used is the worker's own measurement, since the driver does not list it here, 0 if the "
            "driver told it" + SIMULATED,
            ["device"],
            [
                ((device,), float(memory.process_used_source == MEASURED))
                for device, memory in _in_order(state.driver)
                if memory.process_used_bytes is not None
            ],
        )
        yield gauge(
            "vramscope_nvml_used_high_water_bytes",
            "The highest use of VRAM that was seen within the last 60 s, asked for 10 times a second, in bytes.",
            ["device"],
            [((device,), value) for device, value in _in_order(state.driver_high_water_bytes)],
        )
        yield gauge(
            "vramscope_nvml_last_answer_timestamp_seconds",
            "When the driver last answered a question about this device, in seconds since the epoch.",
            ["device"],
            [((device,), at) for device, at in _in_order(state.driver_answered_at)],
        )


def _answers(state: RunState) -> dict[str, bool]:
    """Device to whether the driver answered; a device that nobody has asked about yet is left out."""
    return dict.fromkeys(state.driver_errors, False) | dict.fromkeys(state.driver, True)


def _in_order(values: Mapping[str, Value]) -> list[tuple[str, Value]]:
    return sorted(values.items(), key=lambda item: device_order(item[0]))


COLLECTOR = CollectorFactory(name="driver", create=Driver)

"""What the forecast expects after the running step, and how far off it was after the last one."""

from collections.abc import Iterable

from prometheus_client.core import Metric

from vramscope.collectors._frame import CollectorFactory, Sources, gauge


class Forecast:
    """vramscope_forecast_*."""

    def __init__(self, sources: Sources) -> None:
        self._state = sources.state

    def collect(self) -> Iterable[Metric]:
        state = self._state()
        for quantity in ("allocated", "reserved"):
            yield gauge(
                f"vramscope_forecast_{quantity}_bytes",
                f"What torch should have {quantity} on the device after the latest step, by the forecast, in bytes.",
                ["device"],
                [((name,), getattr(levels, f"{quantity}_bytes")) for name, levels in sorted(state.forecast.items())],
            )
        yield gauge(
            "vramscope_forecast_error_bytes",
            "Measured minus forecast after the latest finished step, in bytes; 0 is a forecast right to the byte.",
            ["device", "quantity"],
            sorted(state.forecast_error_bytes.items()),
        )


COLLECTOR = CollectorFactory(name="forecast", create=Forecast)

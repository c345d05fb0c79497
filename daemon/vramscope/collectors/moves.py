"""Moves between RAM and the devices: bytes, seconds, and how fast the last one was."""

from collections.abc import Iterable

from prometheus_client import Counter
from prometheus_client.core import Metric

from vramscope.collectors._frame import CollectorFactory, Sources, counted, gauge
from vramscope.events import Event, Fact, Outcome, StepEnded
from vramscope.memory.snapshot import HOST

DIRECTION = ("device", "direction")
TO_DEVICE, TO_HOST = "to_device", "to_host"


class Moves:
    """vramscope_move*."""

    def __init__(self, sources: Sources) -> None:
        self._models = sources.model_names
        self._bytes = Counter(
            "vramscope_moved_bytes_total",
            "How many bytes `move` steps have copied, by device (`mixed`: from several to RAM) and direction "
            "(to_device or to_host).",
            DIRECTION,
            registry=None,
        )
        self._seconds = Counter(
            "vramscope_move_seconds_total",
            "How long the copies of `move` steps took, in seconds, by device and direction; opening a CUDA context "
            "is not among them, so bytes by seconds are the bandwidth.",
            DIRECTION,
            registry=None,
        )
        self._last: dict[tuple[str, str, str], float] = {}

    def on_event(self, event: Event) -> None:
        if isinstance(event, StepEnded) and event.kind == "move" and event.outcome is Outcome.SUCCEEDED:
            self._count(event.model, event.facts.get("from"), event.facts.get("to"), event)

    def _count(self, model: str, source: Fact, target: Fact, event: StepEnded) -> None:
        nbytes, seconds = event.facts.get("bytes"), event.facts.get("copy_seconds")
        if not isinstance(nbytes, int) or not isinstance(seconds, int | float) or not nbytes or not seconds:
            return  # it was there already
        direction = (str(source), TO_HOST) if target == HOST else (str(target), TO_DEVICE)
        self._bytes.labels(*direction).inc(nbytes)
        self._seconds.labels(*direction).inc(seconds)
        self._last[model, *direction] = nbytes / seconds

    def collect(self) -> Iterable[Metric]:
        yield from counted(self._bytes, self._seconds)
        models = self._models()
        yield gauge(
            "vramscope_move_last_bytes_per_second",
            "How fast the model's last move copied, in bytes per second, by device and direction.",
            ("model", *DIRECTION),
            [(labels, speed) for labels, speed in sorted(self._last.items()) if labels[0] in models],
        )


COLLECTOR = CollectorFactory(name="moves", create=Moves)

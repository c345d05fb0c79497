"""The worker process: whether it lives, what it runs with, why it was started again, and its memory in RAM.

The peak begins anew with each step; where the kernel does not allow that, it is the peak since the process started.
"""

from collections.abc import Iterable

from prometheus_client import Counter
from prometheus_client.core import Metric

from vramscope.collectors._frame import CollectorFactory, Sources, counted, gauge, info
from vramscope.events import Event, WorkerExited
from vramscope.memory.snapshot import ResidentMemory


class Worker:
    """vramscope_worker_*."""

    def __init__(self, sources: Sources) -> None:
        self._state = sources.state
        self._restarts = Counter(
            "vramscope_worker_restarts_total",
            "How often the worker process ended unasked and had to be started again, by reason.",
            ["reason"],
            registry=None,
        )
        for reason in sorted(sources.exit_reasons):
            self._restarts.labels(reason)

    def on_event(self, event: Event) -> None:
        if isinstance(event, WorkerExited) and not event.expected:
            self._restarts.labels(event.reason).inc()

    def collect(self) -> Iterable[Metric]:
        state = self._state()
        worker, resident = state.worker, state.worker_resident
        yield gauge(
            "vramscope_worker_up",
            "1 while the worker process, which owns PyTorch and the GPU, is alive and ready, else 0.",
            [],
            [((), float(worker.up))],
        )
        yield info(
            "vramscope_worker",
            "The versions that the worker runs with, and its backend (cuda or simulated); always 1.",
            [
                {
                    "torch": worker.versions.get("torch", ""),
                    "transformers": worker.versions.get("transformers", ""),
                    "cuda": worker.versions.get("cuda", ""),
                    "backend": worker.backend,
                }
            ]
            if worker.backend
            else [],
        )
        yield from counted(self._restarts)
        if resident is not None:
            yield from _resident(resident)


def _resident(resident: ResidentMemory) -> Iterable[Metric]:
    """The worker's process in RAM."""
    yield gauge(
        "vramscope_worker_resident_bytes",
        "Memory of the worker process in bytes, by kind: anonymous (its own), file (mapped files) or swap.",
        ["kind"],
        [
            (("anonymous",), resident.anonymous_bytes),
            (("file",), resident.file_bytes),
            (("swap",), resident.swap_bytes),
        ],
    )
    yield gauge(
        "vramscope_worker_resident_peak_bytes",
        "The most RAM that the worker process held since the current or last step began, in bytes.",
        [],
        [((), resident.peak_bytes)],
    )


COLLECTOR = CollectorFactory(name="worker", create=Worker)

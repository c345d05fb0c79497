"""The worker process: whether it lives, what it runs with, why it was started again, and its memory in RAM.

The peak begins anew with each step; where the kernel does not allow that, it is the peak since the process started.
That of a load is kept apart until the model's next load.
"""

from collections.abc import Iterable

from prometheus_client import Counter
from prometheus_client.core import Metric

from vramscope.collectors._frame import CollectorFactory, Sources, counted, gauge, info
from vramscope.events import Event, WorkerExited
from vramscope.memory.snapshot import ResidentMemory
from vramscope.supervisor.state import LastStep


class Worker:
    """vramscope_worker_*."""

    def __init__(self, sources: Sources) -> None:
        self._state = sources.state
        self._model_names = sources.model_names
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
        models = self._model_names()
        yield _load_peaks([step for step in state.last_steps.values() if step.model in models])


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


def _load_peaks(steps: Iterable[LastStep]) -> Metric:
    """The peak of each model's last load that worked; a plan may load a model in several steps."""
    peaks: dict[str, float] = {}
    for step in sorted(steps, key=lambda step: step.ended_at):
        if step.kind == "load" and isinstance(peak := step.facts.get("resident_peak_bytes"), int):
            peaks[step.model] = peak
    return gauge(
        "vramscope_worker_load_peak_bytes",
        "The most RAM that the worker process held at once during this model's last load, in bytes.",
        ["model"],
        [((model,), peak) for model, peak in sorted(peaks.items())],
    )


COLLECTOR = CollectorFactory(name="worker", create=Worker)

"""The plan that runs, and its cycles."""

from collections.abc import Iterable

from prometheus_client import Counter
from prometheus_client.core import Metric

from vramscope.collectors._frame import CollectorFactory, Sources, counted, gauge, info
from vramscope.events import CycleEnded, Event, Outcome


class PlanMetrics:
    """vramscope_plan_* and vramscope_cycle*."""

    def __init__(self, sources: Sources) -> None:
        self._state = sources.state
        self._cycles = Counter(
            "vramscope_cycles_total",
            "How many passes through the plan's steps have ended, by outcome.",
            ["outcome"],
            registry=None,
        )
        for outcome in (Outcome.SUCCEEDED, Outcome.FAILED, Outcome.CANCELLED):  # a cycle itself has no timeout
            self._cycles.labels(outcome.value)

    def on_event(self, event: Event) -> None:
        if isinstance(event, CycleEnded):
            self._cycles.labels(event.outcome.value).inc()

    def collect(self) -> Iterable[Metric]:
        plan = self._state().plan
        yield info(
            "vramscope_plan",
            "The plan that runs: its name and the SHA-256 of its file; always 1.",
            [{"plan": plan.name, "sha256": plan.sha256}] if plan.name else [],
        )
        reload = self._state().reload
        yield gauge(
            "vramscope_plan_last_reload_success",
            "1 if the plan file was good when it was last read, 0 if it was not and the plan before goes on.",
            [],
            [((), float(not reload.problem) if plan.name else None)],
        )
        yield gauge(
            "vramscope_plan_last_reload_success_timestamp_seconds",
            "When the plan file was last read and good, in seconds since 1970.",
            [],
            [((), reload.succeeded_at)],
        )
        yield from counted(self._cycles)
        yield gauge(
            "vramscope_cycle_last_duration_seconds",
            "How long the last pass through the plan's steps took, without a worker's start before it, in seconds.",
            [],
            [((), plan.last_cycle_seconds)],
        )
        yield gauge(
            "vramscope_cycle_last_success_timestamp_seconds",
            "When a pass through the plan's steps last succeeded, in seconds since 1970.",
            [],
            [((), plan.last_success_at)],
        )


COLLECTOR = CollectorFactory(name="plan", create=PlanMetrics)

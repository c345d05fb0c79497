"""The plan's steps: how often each kind ran, how long it took, what runs now and how far it is."""

from collections.abc import Iterable

from prometheus_client import Counter, Histogram
from prometheus_client.core import Metric

from vramscope.collectors._frame import CollectorFactory, Sources, counted, gauge
from vramscope.events import Event, Outcome, StepEnded
from vramscope.supervisor.state import RunningStep, RunState

# From a tokenize (10 ms) to a download over a slow line (1 h); a load of some GB lies in the middle.
DURATION_BUCKETS_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
STEP = ("step", "kind", "model")
PHASE = ("model", "kind", "phase")


class Steps:
    """vramscope_step_*, vramscope_phase_* and vramscope_tokens."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._runs = Counter(
            "vramscope_step_runs_total",
            "How many steps have ended, by kind of step and outcome.",
            ["kind", "outcome"],
            registry=None,
        )
        self._durations = Histogram(
            "vramscope_step_duration_seconds",
            "How long steps took, in seconds, by kind of step.",
            ["kind"],
            buckets=DURATION_BUCKETS_SECONDS,
            registry=None,
        )
        for kind in sorted(sources.step_kinds):
            self._durations.labels(kind)
            for outcome in Outcome:
                self._runs.labels(kind, outcome.value)
        self._counted: tuple[Metric, ...] = ()  # 200 series, which change only when a step ends

    def on_event(self, event: Event) -> None:
        if isinstance(event, StepEnded):
            self._runs.labels(event.kind, event.outcome.value).inc()
            self._durations.labels(event.kind).observe(event.seconds)
            self._counted = ()

    def collect(self) -> Iterable[Metric]:
        state = self._sources.state()
        self._counted = self._counted or tuple(counted(self._runs, self._durations))
        yield from self._counted
        yield from _running(state.running)
        yield from self._last_steps(state)
        yield from self._last_phases(state)

    def _last_steps(self, state: RunState) -> Iterable[Metric]:
        models, names = self._sources.model_names(), self._sources.step_names()
        steps = [
            step
            for step in state.last_steps.values()
            if step.step in names and (not step.model or step.model in models)
        ]
        yield gauge(
            "vramscope_step_last_duration_seconds",
            "How long the last run of this step of the plan took, in seconds.",
            STEP,
            [((step.step, step.kind, step.model), step.seconds) for step in steps],
        )
        tokens = [(step, step.facts.get("tokens")) for step in steps]
        yield gauge(
            "vramscope_tokens",
            "How many tokens this step's text became in its last run.",
            ["model", "step"],
            [((step.model, step.step), count) for step, count in tokens if isinstance(count, int)],
        )

    def _last_phases(self, state: RunState) -> Iterable[Metric]:
        models = self._sources.model_names()
        phases = [phase for phase in state.last_phases.values() if not phase.model or phase.model in models]
        yield gauge(
            "vramscope_phase_last_duration_seconds",
            "How long this part of the model's last load, move or download took, in seconds; parts never overlap.",
            PHASE,
            [((phase.model, phase.kind, phase.phase), phase.seconds) for phase in phases],
        )
        yield gauge(
            "vramscope_phase_bytes",
            "How many bytes this part of the model's last load, move or download handled.",
            PHASE,
            [((phase.model, phase.kind, phase.phase), phase.nbytes) for phase in phases],
        )


def _running(running: RunningStep | None) -> Iterable[Metric]:
    labels = (running.step, running.kind, running.model) if running else ()
    yield gauge(
        "vramscope_step_running",
        "1 for the step that runs now; a step that does not run has no series.",
        STEP,
        [(labels, 1)] if running else [],
    )
    yield gauge(
        "vramscope_step_started_timestamp_seconds",
        "When the step that runs now began, in seconds since 1970; a step that does not run has no series.",
        STEP,
        [(labels, running.started_at)] if running else [],
    )
    yield gauge(
        "vramscope_step_progress_ratio",
        "How much of its bytes the running step's current part has done, from 0 to 1.",
        STEP,
        [(labels, running.bytes_done / running.bytes_total)] if running and running.bytes_total else [],
    )


COLLECTOR = CollectorFactory(name="steps", create=Steps)

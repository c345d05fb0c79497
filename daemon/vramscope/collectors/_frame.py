"""The frame of a collector: what it may read, what it defines, and the guard that keeps one fault from the others."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.metrics import MetricWrapperBase

from vramscope.events import Event
from vramscope.supervisor.state import RunState

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Everything that a collector may read; all of it is memory, so that a scrape never waits.

    `clock` is seconds since the epoch. `model_names` and `step_names` are what the current plan names: last results of
    anything else are no longer shown. `step_kinds` and `exit_reasons` are the bounded words that counters start with.
    """

    state: Callable[[], RunState]
    clock: Callable[[], float]
    model_names: Callable[[], frozenset[str]]
    step_names: Callable[[], frozenset[str]]
    step_kinds: frozenset[str]
    exit_reasons: frozenset[str]


class Collector(Protocol):
    """Turns the run's state into metric families. It may also have `on_event`, see Listener."""

    def collect(self) -> Iterable[Metric]: ...


@runtime_checkable
class Listener(Protocol):
    """A collector that counts what happens."""

    def on_event(self, event: Event) -> None: ...


@dataclass(frozen=True, kw_only=True)
class CollectorFactory:
    """The plug-in constant COLLECTOR: the value of the label `collector`, and how to make one."""

    name: str
    create: Callable[[Sources], Collector]


def gauge(
    name: str,
    documentation: str,
    labels: Sequence[str],
    samples: Iterable[tuple[Sequence[str], float | None]],
) -> Metric:
    """Return a gauge of `(label values, value)` pairs; None is unknown, and unknown is absent."""
    family = GaugeMetricFamily(name, documentation, labels=labels)
    for values, value in samples:
        if value is not None:
            family.add_metric(values, value)
    return family


def info(name: str, documentation: str, samples: Iterable[Mapping[str, str]]) -> Metric:
    """Return a family `name`_info whose labels are the information."""
    family = InfoMetricFamily(name, documentation)
    for labels in samples:
        family.add_metric([], dict(labels))
    return family


def counted(*instruments: MetricWrapperBase) -> Iterator[Metric]:
    """Yield what prometheus_client's own counters and histograms hold, without the time of creation of each series.

    The classic text format turns that into a gauge beside every counter
    (https://github.com/prometheus/client_python/issues/672).
    """
    for instrument in instruments:
        for family in instrument.collect():
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family


def _require_renderable(families: Iterable[Metric]) -> None:
    """Raise TypeError or ValueError for what would break the whole page when it is written out."""
    for family in families:
        for sample in family.samples:
            if not isinstance(sample.value, int | float) or not all(
                isinstance(value, str) for value in sample.labels.values()
            ):
                raise TypeError(f"{sample.name} has labels {sample.labels!r} and value {sample.value!r}")
            "".join(sample.labels.values()).encode()  # UnicodeEncodeError for half of a surrogate pair


class Guarded:
    """All collectors as one custom collector of prometheus_client; the fault of one loses its own series only.

    A fault is logged once, and again only after the collector has worked in between. `vramscope_collector_success` is
    also 0 on the page after an event that a collector failed to count.
    """

    def __init__(self, collectors: Mapping[str, Collector], timer: Callable[[], float] = time.perf_counter) -> None:
        self._collectors = dict(collectors)
        self._listeners = {name: each for name, each in collectors.items() if isinstance(each, Listener)}
        self._timer = timer
        self._failing: set[str] = set()
        self._missed_event: set[str] = set()

    def on_event(self, event: Event) -> None:
        for name, listener in self._listeners.items():
            try:
                listener.on_event(event)
            except Exception:  # the border of one collector
                self._missed_event.add(name)
                if self._is_news(name):
                    logger.exception("collector_failed", extra={"collector": name})

    def collect(self) -> Iterator[Metric]:
        success = GaugeMetricFamily(
            "vramscope_collector_success",
            "1 if the last run of this group of metrics worked, 0 if its metrics are missing or incomplete.",
            labels=["collector"],
        )
        duration = GaugeMetricFamily(
            "vramscope_collector_duration_seconds",
            "How long this group of metrics took to produce for this page, in seconds.",
            labels=["collector"],
        )
        for name, collector in self._collectors.items():
            started = self._timer()
            families = self._run(name, collector)
            duration.add_metric([name], self._timer() - started)
            success.add_metric([name], float(families is not None and name not in self._missed_event))
            yield from (family for family in families or () if family.samples)
        self._missed_event.clear()
        yield success
        yield duration

    def _run(self, name: str, collector: Collector) -> list[Metric] | None:
        try:
            families = list(collector.collect())
            _require_renderable(families)
        except Exception:  # the border of one collector
            if self._is_news(name):
                logger.exception("collector_failed", extra={"collector": name})
            return None
        if name not in self._missed_event:
            self._failing.discard(name)
        return families

    def _is_news(self, name: str) -> bool:
        """Whether this collector worked until now; from now on it is known to fail."""
        news = name not in self._failing
        self._failing.add(name)
        return news

"""The journal: whether it is written, and how much of what happened is in it. Absent without `--journal`."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric

from vramscope.collectors._frame import CollectorFactory, Sources, gauge


class Journal:
    """vramscope_journal_*."""

    def __init__(self, sources: Sources) -> None:
        self._state = sources.state

    def collect(self) -> Iterable[Metric]:
        journal = self._state().journal
        yield gauge(
            "vramscope_journal_up",
            "1 while the journal can be written, 0 while it cannot, as on a full disk; events wait then.",
            [],
            [] if journal is None else [((), float(not journal.reason))],
        )
        written = CounterMetricFamily("vramscope_journal_events_written", "How many events are in the journal.")
        dropped = CounterMetricFamily(
            "vramscope_journal_events_dropped",
            "How many events will never be in the journal, because too many of them waited for a disk.",
        )
        if journal is not None:
            written.add_metric([], journal.written)
            dropped.add_metric([], journal.dropped)
        yield written
        yield dropped


COLLECTOR = CollectorFactory(name="journal", create=Journal)

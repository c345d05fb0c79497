"""The host's memory, as far as the worker may use it."""

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric

from vramscope.collectors._frame import CollectorFactory, Sources, gauge


class Host:
    """vramscope_host_*; absent where unknown."""

    def __init__(self, sources: Sources) -> None:
        self._state = sources.state

    def collect(self) -> Iterable[Metric]:
        state = self._state()
        host = state.host
        yield gauge(
            "vramscope_host_memory_limit_bytes",
            "The most RAM that vramscope may use, in bytes: the host's, or the smallest limit of its control groups.",
            [],
            [((), host.limit_bytes)],
        )
        yield gauge(
            "vramscope_host_memory_available_bytes",
            "RAM that is left below that limit, in bytes; page cache that is not in active use counts as left.",
            [],
            [((), host.available_bytes)],
        )
        kills = CounterMetricFamily(
            "vramscope_host_oom_kills",
            "How many processes of vramscope's control group the kernel has killed for want of memory.",
        )
        if state.host_oom_kills is not None:
            kills.add_metric([], state.host_oom_kills)
        yield kills


COLLECTOR = CollectorFactory(name="host", create=Host)

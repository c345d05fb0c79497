"""The web configuration: whether what is in force is what its file says."""

from collections.abc import Iterable

from prometheus_client.core import Metric

from vramscope.collectors._frame import CollectorFactory, Sources, gauge


class WebConfigMetrics:
    """vramscope_web_config_last_reload_success; absent without a web configuration."""

    def __init__(self, sources: Sources) -> None:
        self._state = sources.state

    def collect(self) -> Iterable[Metric]:
        problem = self._state().web_config_problem
        yield gauge(
            "vramscope_web_config_last_reload_success",
            "1 if the web configuration was good when it was last read, 0 if not and the one before is in force.",
            [],
            [((), None if problem is None else float(not problem))],
        )


COLLECTOR = CollectorFactory(name="web_config", create=WebConfigMetrics)

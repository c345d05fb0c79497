"""Which vramscope this is."""

import platform
from collections.abc import Iterable

from prometheus_client.core import Metric

from vramscope import __version__
from vramscope.collectors._frame import CollectorFactory, Sources, info


class BuildInfo:
    """vramscope_build_info."""

    def __init__(self, _sources: Sources) -> None:
        self._labels = {"version": __version__, "python": platform.python_version()}

    def collect(self) -> Iterable[Metric]:
        yield info(
            "vramscope_build", "The versions of vramscope and of the Python that runs it; always 1.", [self._labels]
        )


COLLECTOR = CollectorFactory(name="build_info", create=BuildInfo)

"""The page is what prometheus_client writes of the families of this moment, however few of them changed."""

import asyncio

import httpx
import pytest
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily
from prometheus_client.exposition import generate_latest as generate_text
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from starlette.applications import Starlette
from starlette.routing import Route

from vramscope.web.exposition import MetricsPage

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
FORMATS = pytest.mark.parametrize(
    ("accept", "generate"), [("", generate_text), (OPENMETRICS, generate_openmetrics)], ids=["text", "openmetrics"]
)


class Subject:
    """A registry with some metric of each type, and its page."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.gauge = Gauge("g_bytes", "A gauge.", ["name"], registry=self.registry)
        self.counter = Counter("c_total", "A counter.", ["name"], registry=self.registry)
        self.histogram = Histogram("h_seconds", "A histogram.", registry=self.registry)
        self.page = MetricsPage(self.registry.collect)

    def ask(self, accept: str) -> bytes:
        async def endpoint(request):
            return self.page.response(request)

        async def ask() -> bytes:
            transport = httpx.ASGITransport(Starlette(routes=[Route("/", endpoint)]))
            async with httpx.AsyncClient(transport=transport, base_url="http://vramscope") as client:
                return (await client.get("/", headers={"accept": accept})).content

        return asyncio.run(ask())


@pytest.fixture
def subject() -> Subject:
    return Subject()


@FORMATS
def test_every_page_is_what_the_library_writes(subject, accept, generate):
    changes = [
        lambda: None,
        lambda: subject.gauge.labels('a "quoted"\nname').set(1.5),
        lambda: None,
        lambda: subject.counter.labels("x").inc(),
        lambda: subject.histogram.observe(0.3),
        lambda: subject.gauge.labels("b").set(float("nan")),
        lambda: None,
        lambda: subject.gauge.remove("b"),
        lambda: subject.gauge.labels('a "quoted"\nname').set(-2),
    ]
    for change in changes:
        change()
        assert subject.ask(accept) == generate(subject.registry)


@FORMATS
def test_a_family_that_is_changed_in_place_or_described_anew_is_written_anew(subject, accept, generate):
    family = GaugeMetricFamily("f_bytes", "First.", labels=["name"])
    found = [family, InfoMetricFamily("i", "Info.", value={"version": "1"})]

    class Registry:
        def collect(self):
            return list(found)

    subject.page = MetricsPage(Registry().collect)
    subject.ask(accept)
    family.add_metric(["late"], 1)
    assert subject.ask(accept) == generate(Registry())
    family.documentation = "Second."
    assert subject.ask(accept) == generate(Registry())
    found.pop()
    assert subject.ask(accept) == generate(Registry())


def test_the_formats_do_not_mix(subject):
    subject.counter.labels("x").inc()
    for accept, generate in [("", generate_text), (OPENMETRICS, generate_openmetrics)] * 2:
        assert subject.ask(accept) == generate(subject.registry)

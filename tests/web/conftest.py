import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import pytest
from prometheus_client import Gauge
from starlette.types import ASGIApp

from vramscope.report.results import ResultsBuilder
from vramscope.web.application import WebSources, make_application
from vramscope.web.guard import Guard
from vramscope.web.lifecycle import Lifecycle
from vramscope.web.server import DEFAULT_LIMITS, Address, Limits, bind, serve, url

from ..picture import STARTED_AT, told  # noqa: TID252 - tests are not packages


@dataclass
class Site:
    """The application over a store that a test tells events."""

    stories: list
    complaint: str = ""
    collect: Callable | None = None
    lifecycle: Lifecycle | None = None
    clock: Callable[[], float] = lambda: STARTED_AT + 60

    def application(self, guard: Guard | None = None) -> ASGIApp:
        store, results = told(), ResultsBuilder()
        for story in self.stories:
            for event in story:
                store.apply(event)
                results.on_event(event)
        gauge = Gauge("vramscope_test_bytes", "A test, in bytes.", ["name"], registry=None)
        for number in range(100):
            gauge.labels(f"name {number}").set(number)
        return make_application(
            WebSources(
                collect=self.collect or gauge.collect,
                state=lambda: store.state,
                results=lambda: [row.as_json() for row in results.rows()],
                clock=self.clock,
                health=lambda: self.complaint,
            ),
            self.lifecycle,
            guard,
        )

    def ask(self, path: str, method: str = "GET", **headers: str) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.application(), raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://vramscope") as client:
                # httpx has preferences of its own, which a test must not inherit.
                ours = {
                    "accept": "",
                    "accept-encoding": "",
                    **{name.replace("_", "-"): each for name, each in headers.items()},
                }
                return await client.request(method, path, headers=ours)

        return asyncio.run(ask())


@pytest.fixture
def site() -> Site:
    return Site([])


class Served:
    """An application behind a real server on a free port of the loopback, in a thread with its own loop."""

    def __init__(
        self,
        application: ASGIApp,
        listeners: list[socket.socket] | None = None,
        limits: Limits = DEFAULT_LIMITS,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.listeners = listeners or bind([Address("127.0.0.1", 0)], limits)
        self._limits, self._context = limits, context
        self.port = self.listeners[0].getsockname()[1]
        self.url = url(self.listeners[0])
        self._application = application
        self._started = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self._thread.start()
        assert self._started.wait(60)

    async def _serve(self) -> None:
        self._loop, self._shutdown = asyncio.get_running_loop(), asyncio.Event()
        self._started.set()
        await serve(self._application, self.listeners, self._shutdown, self._limits, context=self._context)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._shutdown.set)
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture
def serving() -> Iterator[Callable[..., Served]]:
    running: list[Served] = []

    def start(application: ASGIApp, **settings) -> Served:
        running.append(Served(application, **settings))
        return running[-1]

    yield start
    for each in running:
        if each._thread.is_alive():
            each.stop()

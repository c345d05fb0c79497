"""Many simulated daemons in one process: `python -m tests.benchmarks.fleet_pages ADDRESS:PORT COUNT`.

Each has the real application, collectors and store, which are told the story of tests/story.py at the pace of the
clock; no model is loaded. Daemon number N answers under /N/metrics. They differ in devices and models, and a few are
full, failing, leaking, slow, or down.
"""

import asyncio
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from random import Random

from docs.metrics import sources
from prometheus_client.core import Metric
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Mount, Route
from tests.picture import STARTED_AT, TOTAL
from tests.story import MIB, Life

from vramscope.collectors._catalog import build_registry
from vramscope.events import Event, Outcome
from vramscope.supervisor.store import Store
from vramscope.web.application import WebSources, make_application
from vramscope.web.server import Limits, bind, parse_address, serve

# Devices, models, waits and number types of a daemon, in turn.
SHAPES = ((1, 1, 1, 1), (1, 2, 2, 1), (2, 1, 3, 2), (4, 3, 1, 1), (8, 4, 2, 2))
CYCLES_BEFORE = 6  # of each daemon when it is first asked
USUAL_LOAD_SECONDS = 6.0
DOWN = 97  # every so many daemons one does not answer


class Instance:
    """One simulated daemon. Its page follows the clock that it is asked at, in seconds since the epoch."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.name = f"gpu-{number:03d}:10089"
        devices, models, waits, dtypes = SHAPES[number % len(SHAPES)]
        self.is_down = number % DOWN == DOWN - 1
        self.is_full, self.fails, self.leaks, self.is_slow = (
            number % every == rest for every, rest in ((25, 7), (33, 5), (20, 3), (40, 9))
        )
        self.life = Life(
            models=models,
            devices=devices,
            waits=waits,
            dtypes=dtypes,
            leaves=(64 * MIB,) if self.leaks else (),
            wanders=False,
        )
        self._random = Random(number)  # noqa: S311 - the same fleet each time
        self.store = Store(STARTED_AT)
        self.registry, self._on_event = build_registry(sources(self.life, self.store))
        self._told: Iterator[Event] | None = None
        self._next: Event | None = None

    def collect(self, now: float) -> Iterator[Metric]:
        """The families of the page at this time."""
        if self._told is None:
            self._told = self._lives(now)
        while self._next is None or self._next.at <= now:
            if self._next is not None:
                self._tell(self._next)
            self._next = next(self._told)
        for event in self.life.driver(now, self._used(now)):
            self._tell(event)
        return iter(list(self.registry.collect()))

    def share(self, now: float) -> float:
        """How much of each device is in use."""
        return min(1.0, (0.96 if self.is_full else 0.45) + 0.03 * math.sin(now / 60 + self.number))

    def load_seconds(self) -> float:
        """What the next load takes: about as long as ever, or three times that."""
        return USUAL_LOAD_SECONDS * (3 if self.is_slow else 1) * self._random.uniform(0.9, 1.1)

    def outcome(self, cycle: int) -> Outcome:
        return Outcome.FAILED if self.fails and cycle % 2 else Outcome.SUCCEEDED

    def _used(self, now: float) -> Callable[[str], int]:
        used = int(self.share(now) * TOTAL) + self._random.randrange(MIB)
        return lambda _device: min(used, TOTAL - 2 * MIB)

    def _lives(self, now: float) -> Iterator[Event]:
        at = now - (CYCLES_BEFORE + self._random.random()) * self.life.seconds
        yield from self.life.opening(at)
        for number in count(1):
            life = replace(self.life, load_seconds=self.load_seconds())
            yield from life.cycle(number, at, self.outcome(number))
            at += life.seconds + 2

    def _tell(self, event: Event) -> None:
        self.store.apply(event)
        self._on_event(event)


def application(instances: Sequence[Instance]) -> Starlette:
    """All of them under their numbers, and /write, which takes what a Prometheus writes and forgets it."""

    async def down(_request: Request) -> Response:
        return PlainTextResponse("down", status_code=503)

    async def write(request: Request) -> Response:
        await request.body()
        return Response(status_code=204)

    routes: list[Mount | Route] = [Route("/write", write, methods=["POST"])]
    for each in instances:
        if each.is_down:
            routes.append(Route(f"/{each.number}/metrics", down))
            continue
        site = WebSources(
            collect=lambda each=each: each.collect(time.time()),
            state=lambda each=each: each.store.state,
            results=list,
            clock=time.time,
        )
        routes.append(Mount(f"/{each.number}", make_application(site)))
    return Starlette(routes=routes)


async def answer(address: str, number: int) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    limits = Limits(connections=2 * number + 50)
    await serve(
        application([Instance(each) for each in range(number)]), bind([parse_address(address)], limits), stop, limits
    )


if __name__ == "__main__":
    asyncio.run(answer(sys.argv[1], int(sys.argv[2])))

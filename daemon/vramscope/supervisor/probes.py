"""Looks at the worker and the host from outside, on a schedule, so that they are known while the worker is busy."""

import asyncio
import threading
import time
from collections.abc import Callable
from pathlib import Path

from vramscope.events import Event
from vramscope.memory.host import HostSampled, oom_kills, read_host
from vramscope.memory.resident import read_resident
from vramscope.memory.snapshot import ResidentSampled
from vramscope.supervisor.store import Store

INTERVAL_SECONDS = 1.0


async def watch_resident(store: Store, publish: Callable[[Event], None], *roots: Path) -> None:
    """Publish what the worker's process holds in RAM, and what the host has, once a second, until cancelled.

    The host is looked at below `roots`, see read_host.
    """
    await asyncio.gather(_watch_worker(store, publish), _watch_host(publish, *roots))


async def _watch_worker(store: Store, publish: Callable[[Event], None]) -> None:
    while True:
        pid = store.state.worker.pid
        resident = read_resident(pid) if pid is not None else None
        if resident is not None:
            publish(ResidentSampled(at=time.time(), resident=resident))
        await asyncio.sleep(INTERVAL_SECONDS)


async def _watch_host(publish: Callable[[Event], None], *roots: Path) -> None:
    while True:
        publish(await _look_at_host(*roots))
        await asyncio.sleep(INTERVAL_SECONDS)


async def _look_at_host(*roots: Path) -> HostSampled:
    """Ask in a thread: memory.stat may take seconds (https://github.com/google/cadvisor/issues/2259).

    Not in one of the loop's own, which are waited for when the process ends, however long a file hangs.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[HostSampled] = loop.create_future()

    def tell(sampled: HostSampled) -> None:
        if not answer.done():
            answer.set_result(sampled)

    def look() -> None:
        sampled = HostSampled(at=time.time(), memory=read_host(*roots), oom_kills=oom_kills(*roots))
        try:
            loop.call_soon_threadsafe(tell, sampled)
        except RuntimeError:
            return  # the loop is closed: the process is ending

    threading.Thread(target=look, name="host", daemon=True).start()
    return await answer

"""Looks at the worker and the host from outside, on a schedule, so that they are known while the worker is busy."""

import asyncio
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
    """Ask in a thread: memory.stat may take seconds (https://github.com/google/cadvisor/issues/2259)."""
    while True:
        at = time.time()
        memory, kills = await asyncio.to_thread(lambda: (read_host(*roots), oom_kills(*roots)))
        publish(HostSampled(at=at, memory=memory, oom_kills=kills))
        await asyncio.sleep(INTERVAL_SECONDS)

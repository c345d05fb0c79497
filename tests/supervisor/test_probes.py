"""The probes of memory, over this process and over control groups that only say so."""

import asyncio
import os
import threading
import time
from pathlib import Path

from tests.memory.trees import limited_root

from vramscope.events import Event, WorkerStarted
from vramscope.memory.host import HostSampled
from vramscope.memory.snapshot import ResidentSampled
from vramscope.supervisor.probes import watch_resident
from vramscope.supervisor.store import Store

LIMIT_BYTES = 64 << 20


def test_what_the_worker_holds_and_what_the_host_has_is_published(tmp_path: Path) -> None:
    began, events, store = time.time(), [], Store(1.0)
    store.apply(WorkerStarted(at=1.0, pid=os.getpid()))

    async def body() -> None:
        both = asyncio.Event()

        def publish(event: Event) -> None:
            events.append(event)
            store.apply(event)
            if {type(each) for each in events} == {HostSampled, ResidentSampled}:
                both.set()

        root = limited_root(tmp_path, LIMIT_BYTES, used_bytes=1 << 20)
        probe = asyncio.create_task(watch_resident(store, publish, root))
        await asyncio.wait_for(both.wait(), 60)
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)

    asyncio.run(body())
    assert (store.state.host.limit_bytes, store.state.host.available_bytes) == (LIMIT_BYTES, 63 << 20)
    assert store.state.worker_resident is not None
    assert store.state.worker_resident.anonymous_bytes > 1 << 20
    assert all(began <= event.at <= time.time() for event in events)


def test_a_file_of_the_kernel_that_hangs_does_not_keep_the_process_from_ending(tmp_path: Path) -> None:
    root = limited_root(tmp_path, 1 << 40)
    pipes = list(root.rglob("memory.stat"))
    for pipe in pipes:
        pipe.unlink()
        os.mkfifo(pipe)  # reading waits for a writer

    async def body() -> None:
        probe = asyncio.create_task(watch_resident(Store(1.0), lambda _event: None, root))
        await asyncio.sleep(0)
        while not any(each.name == "host" for each in threading.enumerate()):  # noqa: ASYNC110 - no event tells it
            await asyncio.sleep(0.01)
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)

    ended = threading.Thread(target=lambda: asyncio.run(body()), daemon=True)
    ended.start()
    ended.join(60)
    assert not ended.is_alive()
    for pipe in pipes:  # let go of the thread
        os.close(os.open(pipe, os.O_RDWR | os.O_NONBLOCK))

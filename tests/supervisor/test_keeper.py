"""The keeper's rules that need no worker, or a worker that is never ready."""

import asyncio
from pathlib import Path

import pytest

from vramscope.errors import WorkerError
from vramscope.events import Event, WorkerExited
from vramscope.plan.parse import parse_plan
from vramscope.settings import Deadlines, DeviceMode, WorkerSettings
from vramscope.steps._catalog import step_kinds
from vramscope.supervisor.keeper import Keeper, backoff

PLAN = parse_plan(b"version: 1\nmodels: {}\nsteps: [{wait: 1s}]\n", "plan.yaml", step_kinds())


def keeper(cache: Path, events: list[Event], **deadlines: float) -> Keeper:
    settings = WorkerSettings(device_mode=DeviceMode.SIMULATED, cache=cache, hub_cache=cache)
    return Keeper(settings, Deadlines(restart_backoff=0.01, **deadlines), events.append)


def test_pauses_double_up_to_their_limit_and_never_overflow() -> None:
    assert [backoff(failures, 0.5, 30.0) for failures in (1, 2, 3, 7, 5000)] == [0.5, 1.0, 2.0, 30.0, 30.0]


def test_worker_that_is_never_ready_is_told_each_time_and_leaves_no_process(tmp_path: Path) -> None:
    events: list[Event] = []

    async def body() -> None:
        kept = keeper(tmp_path, events, ready=0.1)
        for _ in range(2):
            with pytest.raises(WorkerError, match=r"not ready within 0\.1 s"):
                await kept.worker(PLAN)
        await kept.close()

    asyncio.run(body())
    exits = [event for event in events if isinstance(event, WorkerExited)]
    assert [(event.reason, event.expected) for event in exits] == [("hung", False)] * 2
    assert not any(Path(f"/proc/{event.pid}").exists() for event in exits)


def test_after_the_close_no_worker_is_started(tmp_path: Path) -> None:
    events: list[Event] = []

    async def body() -> None:
        kept = keeper(tmp_path, events)
        await kept.close()
        with pytest.raises(WorkerError, match="the run is ending"):
            await kept.worker(PLAN)

    asyncio.run(body())
    assert events == []

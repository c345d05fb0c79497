"""The keeper's rules that need no worker, or a worker that is never ready."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from tests.memory.trees import Tree, write

from vramscope.errors import WorkerError
from vramscope.events import Event, WorkerExited
from vramscope.plan.parse import parse_plan
from vramscope.settings import Deadlines, DeviceMode, WorkerSettings
from vramscope.steps._catalog import step_kinds
from vramscope.supervisor.keeper import Keeper, backoff

PLAN = parse_plan(b"version: 1\nmodels: {}\nsteps: [{wait: 1s}]\n", "plan.yaml", step_kinds())


def settings_in(cache: Path) -> WorkerSettings:
    return WorkerSettings(device_mode=DeviceMode.SIMULATED, cache=cache, hub_cache=cache)


def keeper(cache: Path, events: list[Event], **deadlines: float) -> Keeper:
    return Keeper(settings_in(cache), Deadlines(restart_backoff=0.01, **deadlines), events.append)


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


@pytest.mark.parametrize(("kills", "reason"), [(3, "oom_killed"), (2, "signal")])
def test_a_worker_that_dies_while_the_kernel_counts_a_kill_is_put_down_to_it(
    tmp_path: Path, kills: int, reason: str
) -> None:
    events: list[Event] = []
    tree = Tree(tmp_path, "0::/c1").v2("c1", "max")
    write(tree.root, {"c1/memory.events": "oom_kill 2"})
    root, proc = tree.places
    settings = replace(settings_in(tmp_path), cgroup_root=root, proc_root=proc)

    async def body() -> None:
        told = asyncio.Event()

        def publish(event: Event) -> None:
            events.append(event)
            told.set()

        kept = Keeper(settings, Deadlines(), publish)
        start = asyncio.create_task(kept.worker(PLAN))
        await told.wait()
        write(tree.root, {"c1/memory.events": f"oom_kill {kills}"})
        os.kill(events[0].pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match="killed by SIGKILL"):
            await start
        await kept.close()

    asyncio.run(asyncio.wait_for(body(), 60))
    (ended,) = (event for event in events if isinstance(event, WorkerExited))
    assert (ended.reason, ended.expected) == (reason, False)
    assert ("OOM killer" in ended.detail) is (reason == "oom_killed")


def test_a_worker_is_told_what_will_be_loaded_first(tmp_path: Path) -> None:
    def first(steps: str) -> tuple[str, str]:
        models = "models: {a: {source: /a}, b: {source: o/b, revision: v2}}"
        plan = parse_plan(f"version: 1\n{models}\nsteps: [{steps}]\n".encode(), "plan.yaml", step_kinds())
        settings = keeper(tmp_path, [])._settings_for(plan)
        return settings.first_source, settings.first_revision

    assert first("{tokenize: {model: a, text: x}}, {wait: 1s}") == ("", "main")
    assert first("{wait: 1s}, {repeat: {times: 2, steps: [{load: b}, {unload: b}]}}, {load: a}, {unload: a}") == (
        "o/b",
        "v2",
    )

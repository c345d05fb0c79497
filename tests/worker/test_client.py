"""Real worker processes: ready, steps, cancel, silence, death. Each is ended by the test that started it."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from vramscope.errors import UsageError, WorkerError
from vramscope.events import Event, Outcome, PhaseEnded
from vramscope.memory.snapshot import MemorySampled
from vramscope.plan.schema import ModelSpec
from vramscope.settings import Deadlines, DeviceMode, WorkerSettings
from vramscope.worker.client import WorkerClient
from vramscope.worker.lifecycle import ExitReason
from vramscope.worker.protocol import Configure, Reset, RunStep

# A busy machine may be slow to end a process or a step; what takes its deadline sets a shorter one.
PATIENT = Deadlines(cancel=60, shutdown=60, kill=60)
MODELS = {"tiny": ModelSpec(name="tiny", source="synthetic:tiny")}


@asynccontextmanager
async def worker(
    cache: Path, deadlines: Deadlines = PATIENT, mode: DeviceMode = DeviceMode.SIMULATED
) -> AsyncIterator[tuple[WorkerClient, list[Event]]]:
    events: list[Event] = []
    settings = WorkerSettings(device_mode=mode, cache=cache, hub_cache=cache / "hub")
    client = await WorkerClient.spawn(settings, deadlines, events.append)
    try:
        yield client, events
    finally:
        await client.kill()


async def ready(client: WorkerClient) -> None:
    await client.wait_ready()
    await client.send(Configure(models=MODELS, device="cuda:0"))


def step(run: int, kind: str, **fields: object) -> RunStep:
    return RunStep(run=run, step=kind, kind=kind, model="tiny", fields=fields)


def run(body: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(body(), 100))


def test_life_of_a_model_and_every_way_to_end_a_step(tmp_path: Path) -> None:
    """One process for all of it: starting one takes seconds."""

    async def body() -> None:
        async with worker(tmp_path) as (client, events):
            await ready(client)
            assert client.usable

            loaded = await client.request(1, step(1, "load", model="tiny"))
            assert (loaded.outcome, loaded.error) == (Outcome.SUCCEEDED, "")
            phases = [event.phase for event in events if isinstance(event, PhaseEnded)]
            assert phases == ["generate", "resolve", "import", "read", "build"]
            sample = [event for event in events if isinstance(event, MemorySampled)][-1]
            assert sample.models[0].parameters == 139_840
            assert {group.device for group in sample.models[0].groups} == {"cpu"}

            twice = await client.request(2, step(2, "load", model="tiny"))
            assert (twice.outcome, twice.error) == (Outcome.FAILED, "model 'tiny' is loaded already")

            moved = await client.request(3, step(3, "move", model="tiny"))
            assert moved.outcome is Outcome.SUCCEEDED
            sample = [event for event in events if isinstance(event, MemorySampled)][-1]
            assert {group.device for group in sample.models[0].groups} == {"cuda:0"}
            assert sample.devices[0].allocator.reserved_bytes == 2 << 20

            elsewhere = await client.request(4, step(4, "move", model="tiny", to="cuda:7"))
            assert "cuda:7" in elsewhere.error
            assert elsewhere.outcome is Outcome.FAILED

            unexpected = await client.request(5, step(5, "expect", torch_allocated={"equals": 1}))
            assert unexpected.outcome is Outcome.FAILED

            waiting = asyncio.create_task(client.request(6, step(6, "wait", duration=60)))
            await asyncio.sleep(0.2)  # begun or not: it must end either way
            assert await client.cancel(6), "a cancelled step ends by itself"
            assert (await waiting).outcome is Outcome.CANCELLED

            reset = await client.request(7, Reset(run=7))
            assert reset.outcome is Outcome.SUCCEEDED
            sample = [event for event in events if isinstance(event, MemorySampled)][-1]
            assert (sample.models, sample.devices[0].allocator.allocated_bytes) == ((), 0)

            ended = await client.stop()
            assert (ended.reason, ended.detail) == (ExitReason.EXIT, "the worker ended with exit code 0")

    run(body)


def pause(pid: int) -> None:
    """Stop our child, and return when every one of its threads stands: a signal is only on its way at first."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)


def test_silent_worker_is_killed_and_the_step_says_so(tmp_path: Path) -> None:
    async def body() -> None:
        async with worker(tmp_path, replace(PATIENT, heartbeat=3)) as (client, _):
            await ready(client)
            pause(client.pid)
            with pytest.raises(WorkerError, match="silent for 3 s and was killed"):
                await client.request(1, step(1, "load", model="tiny"))
            assert (await client.exited).reason is ExitReason.HUNG

    run(body)


def test_stopped_worker_is_ended_by_force_within_its_deadlines(tmp_path: Path) -> None:
    async def body() -> None:
        async with worker(tmp_path, replace(PATIENT, shutdown=0.2, terminate=0.2)) as (client, _):
            await ready(client)
            pause(client.pid)
            began = time.monotonic()
            assert (await client.stop()).detail == "the worker was killed by SIGKILL"
            assert time.monotonic() - began < 50

    run(body)


def test_worker_that_is_not_ready_in_time_is_killed(tmp_path: Path) -> None:
    async def body() -> None:
        async with worker(tmp_path, replace(PATIENT, ready=0.2)) as (client, _):
            with pytest.raises(WorkerError, match=r"not ready within 0\.2 s"):
                await client.wait_ready()
            assert client.exited.done()

    run(body)


def test_worker_that_dies_before_ready_says_how(tmp_path: Path) -> None:
    async def body() -> None:
        async with worker(tmp_path) as (client, _):
            os.kill(client.pid, signal.SIGKILL)
            with pytest.raises(WorkerError, match="did not start: the worker was killed by SIGKILL"):
                await client.wait_ready()

    run(body)


def test_cuda_where_there_is_none_is_refused_for_good(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")

    async def body() -> None:
        async with worker(tmp_path, mode=DeviceMode.CUDA) as (client, _):
            with pytest.raises(UsageError, match=r"--device cuda: torch (.* is built without|cannot start) CUDA"):
                await client.wait_ready()

    run(body)


def test_the_worker_is_out_of_reach_of_the_terminals_keys_and_is_scheduled_with_its_supervisor(tmp_path: Path) -> None:
    """A process group of its own, for the keys; the same session, which is what Linux's autogroups go by."""

    async def body() -> None:
        async with worker(tmp_path) as (client, _):
            assert os.getpgid(client.pid) == client.pid
            assert os.getsid(client.pid) == os.getsid(0)

    run(body)

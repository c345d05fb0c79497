"""The runner with a real keeper and real workers: what each plan's end looks like in events."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from vramscope.events import (
    CycleEnded,
    CycleStarted,
    Event,
    Outcome,
    PlanEnded,
    PlanStarted,
    StepEnded,
    StepStarted,
    WorkerExited,
)
from vramscope.memory.snapshot import MemorySampled
from vramscope.plan.parse import parse_plan
from vramscope.settings import Deadlines, DeviceMode, WorkerSettings
from vramscope.steps._catalog import step_kinds
from vramscope.supervisor.current import CurrentPlan
from vramscope.supervisor.keeper import Keeper
from vramscope.supervisor.runner import Runner

HEAD = "version: 1\nmodels: {tiny: {source: 'synthetic:tiny'}, gone: {source: '/no/such/model'}}\n"


class Stage:
    """A runner over a plan, and what it published."""

    def __init__(self, plan: str, cache: Path) -> None:
        self.events: list[Event] = []
        self.watchers: list[Callable[[Event], None]] = []
        self.plan = parse_plan((HEAD + plan).encode(), "plan.yaml", step_kinds())
        settings = WorkerSettings(device_mode=DeviceMode.SIMULATED, cache=cache, hub_cache=cache / "hub")
        self.keeper = Keeper(settings, Deadlines(restart_backoff=0.1, cancel=60, shutdown=60, kill=60), self.publish)
        self.runner = Runner(CurrentPlan(self.plan), self.keeper, self.publish)

    def publish(self, event: Event) -> None:
        self.events.append(event)
        for watcher in self.watchers:
            watcher(event)

    def of(self, kind: type[Event]) -> list:
        return [event for event in self.events if isinstance(event, kind)]

    def play(self, cycles: int | None) -> Outcome:
        async def body() -> Outcome:
            try:
                return await asyncio.wait_for(self.runner.run(cycles), 100)
            finally:
                await self.keeper.stop()

        return asyncio.run(body())


def test_failure_unloads_everything_and_the_next_cycle_starts_afresh(tmp_path: Path) -> None:
    stage = Stage("steps: [{load: tiny}, {move: tiny}, {load: gone}, {wait: 1s}]", tmp_path)
    assert stage.play(2) is Outcome.FAILED

    ended = [(step.kind, step.outcome.value) for step in stage.of(StepEnded)]
    assert ended == [("load", "succeeded"), ("move", "succeeded"), ("load", "failed")] * 2
    assert "/no/such/model" in stage.of(StepEnded)[2].error
    assert [cycle.outcome for cycle in stage.of(CycleEnded)] == [Outcome.FAILED] * 2
    last = stage.of(MemorySampled)[-1]
    assert (last.models, last.devices[0].allocator.allocated_bytes) == ((), 0)
    assert [exited.expected for exited in stage.of(WorkerExited)] == [True], "one worker served both cycles"


def test_a_step_that_passes_its_timeout_is_stopped_and_the_worker_stays(tmp_path: Path) -> None:
    stage = Stage("steps: [{wait: 90s, timeout: 300ms}]", tmp_path)
    assert stage.play(2) is Outcome.FAILED
    ended = [(step.outcome.value, step.error) for step in stage.of(StepEnded)]
    assert ended == [("timed_out", "not done after its timeout of 0.3 s")] * 2
    assert [exited.expected for exited in stage.of(WorkerExited)] == [True]


def test_on_failure_stop_ends_the_plan_at_the_failure(tmp_path: Path) -> None:
    stage = Stage("on_failure: stop\nrepeat: 5\nsteps: [{load: gone}, {unload: gone}]", tmp_path)
    assert stage.play(5) is Outcome.FAILED
    assert len(stage.of(CycleEnded)) == 1
    assert [event.outcome for event in stage.of(PlanEnded)] == [Outcome.FAILED]


def test_cycles_start_every_so_often_whatever_they_take(tmp_path: Path) -> None:
    stage = Stage("every: 500ms\nsteps: [{wait: 250ms}]", tmp_path)
    assert stage.play(6) is Outcome.SUCCEEDED
    starts = [cycle.at for cycle in stage.of(CycleStarted)]
    pauses = [after - before for before, after in pairwise(starts)][1:]  # the first cycle waits for the worker
    assert min(pauses) > 0.45, "never early, whatever the machine does"
    assert min(pauses) < 0.7, "and where it is not busy the wait is a part of the pause"


def test_a_cycle_takes_as_long_as_its_steps_and_the_start_of_the_worker_is_none(tmp_path: Path) -> None:
    stage = Stage("steps: [{wait: 10ms}]", tmp_path)
    assert stage.play(1) is Outcome.SUCCEEDED
    (ended,), (step,) = stage.of(CycleEnded), stage.of(StepStarted)
    (started,) = stage.of(CycleStarted)
    assert 0.01 <= ended.seconds < ended.at - started.at
    assert started.at < ended.at - ended.seconds <= step.at + 0.05


def test_worker_that_dies_between_two_steps_fails_the_next_one_with_the_reason(tmp_path: Path) -> None:
    stage = Stage("steps: [{load: tiny}, {unload: tiny}]", tmp_path)

    def kill_after_first_load(event: Event) -> None:
        if isinstance(event, StepEnded) and event.kind == "load" and event.cycle == 1:
            pid = stage.keeper.client.pid
            os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):  # somebody has seen it already
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)

    stage.watchers.append(kill_after_first_load)
    assert stage.play(2) is Outcome.FAILED
    failed = next(step for step in stage.of(StepEnded) if step.outcome is Outcome.FAILED)
    assert failed.kind == "unload"
    assert "killed by SIGKILL" in failed.error
    assert [cycle.outcome for cycle in stage.of(CycleEnded)] == [Outcome.FAILED, Outcome.SUCCEEDED]
    assert [(exited.reason, exited.expected) for exited in stage.of(WorkerExited)] == [
        ("signal", False),
        ("exit", True),
    ]


def test_restart_worker_gives_the_context_back_and_the_plan_goes_on(tmp_path: Path) -> None:
    steps = "[{load: tiny}, {move: tiny}, {unload: tiny}, restart_worker, {wait: 10ms}]"
    stage = Stage(f"steps: {steps}", tmp_path)
    assert stage.play(2) is Outcome.SUCCEEDED

    assert [(exited.reason, exited.expected) for exited in stage.of(WorkerExited)] == [("exit", True)] * 3
    used = {}
    for event in stage.events:
        if isinstance(event, MemorySampled):
            sample = event
        if isinstance(event, StepEnded):
            used[event.cycle, event.kind] = sample.devices[0].driver.process_used_bytes
    assert used[1, "unload"] == (113 + 2) << 20
    assert used[1, "wait"] == used[2, "load"] == 0


def test_cancelling_the_run_ends_step_and_cycle_as_cancelled(tmp_path: Path) -> None:
    stage = Stage("repeat: forever\nsteps: [{wait: 60s}]", tmp_path)

    async def body() -> None:
        started = asyncio.Event()
        stage.watchers.append(lambda event: started.set() if isinstance(event, StepStarted) else None)
        run = asyncio.create_task(stage.runner.run(None))
        await asyncio.wait_for(started.wait(), 100)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        await stage.keeper.stop()

    asyncio.run(body())
    assert [step.outcome for step in stage.of(StepEnded)] == [Outcome.CANCELLED]
    assert [cycle.outcome for cycle in stage.of(CycleEnded)] == [Outcome.CANCELLED]


def test_a_new_plan_is_taken_over_between_two_steps_with_nothing_left_of_the_old_one(tmp_path: Path) -> None:
    stage = Stage("repeat: forever\nsteps: [{load: tiny}, {wait: 60s}, {unload: tiny}]", tmp_path)
    other = "version: 1\nname: other\nmodels: {small: {source: 'synthetic:tiny'}}\n"
    new = parse_plan((other + "steps: [{load: small}, {unload: small}]").encode(), "plan.yaml", step_kinds())
    over = []

    def adopt(event: Event) -> None:
        if isinstance(event, StepStarted) and event.kind == "load" and event.model == "tiny":
            stage.runner.adopt(new)

    stage.watchers.append(adopt)

    async def body() -> None:
        run = asyncio.create_task(stage.runner.run_all(lambda: over.append(len(stage.of(PlanEnded)))))
        async with asyncio.timeout(100):
            while not over:
                assert not run.done()
                await asyncio.sleep(0.01)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await stage.keeper.stop()

    asyncio.run(body())
    assert [(step.kind, step.model, step.outcome.value) for step in stage.of(StepEnded)] == [
        ("load", "tiny", "succeeded"),
        ("load", "small", "succeeded"),
        ("unload", "small", "succeeded"),
    ]
    assert [cycle.outcome.value for cycle in stage.of(CycleEnded)] == ["cancelled", "succeeded"]
    assert [(plan.plan, plan.models) for plan in stage.of(PlanStarted)] == [
        ("plan", ("gone", "tiny")),
        ("other", ("small",)),
    ]
    last_of_the_old = stage.events[: stage.events.index(stage.of(PlanStarted)[1])][::-1]
    sample = next(event for event in last_of_the_old if isinstance(event, MemorySampled))
    assert sample.models == ()
    assert over == [2], "a plan that gave way to another is not over"
    assert len(stage.of(WorkerExited)) == 1, "one worker served both"


def test_a_new_plan_does_not_wait_for_the_pause_between_cycles_nor_after_the_last(tmp_path: Path) -> None:
    stage = Stage("every: 1h\nrepeat: 2\nsteps: [{wait: 10ms}]", tmp_path)
    plans = [
        parse_plan(f"{HEAD}name: {name}\nsteps: [{{wait: 10ms}}]".encode(), "plan.yaml", step_kinds())
        for name in ("second", "third")
    ]

    def adopt(event: Event) -> None:
        if isinstance(event, CycleEnded) and plans:
            asyncio.get_running_loop().call_later(0.1, lambda plan=plans.pop(0): stage.runner.adopt(plan))

    stage.watchers.append(adopt)

    async def body() -> None:
        run = asyncio.create_task(stage.runner.run_all(lambda: None))
        async with asyncio.timeout(100):
            while len(stage.of(PlanEnded)) < 3:  # noqa: ASYNC110 - events come by a callback
                await asyncio.sleep(0.01)
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await stage.keeper.stop()

    asyncio.run(body())
    assert [plan.plan for plan in stage.of(PlanStarted)] == ["plan", "second", "third"]
    assert [plan.outcome.value for plan in stage.of(PlanEnded)] == ["cancelled", "succeeded", "succeeded"]

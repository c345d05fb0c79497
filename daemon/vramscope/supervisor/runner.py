"""Walks the plan: cycle after cycle, step after step, and tells how each ended. No step's failure ends the process.

A new plan is taken over at the boundary between two steps. It starts with its first step and with nothing loaded, as
every plan does, so the cycle that runs then ends as cancelled, and all models are unloaded.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import Callable

from vramscope.errors import WorkerError
from vramscope.events import (
    CycleAwaited,
    CycleEnded,
    CycleStarted,
    Event,
    Outcome,
    PlanEnded,
    PlanStarted,
    StepEnded,
    StepStarted,
)
from vramscope.forecast.order import SOURCE_CHANGED
from vramscope.plan.kinds import Action
from vramscope.plan.schema import OnFailure, Plan, Step, walk
from vramscope.supervisor.current import CurrentPlan
from vramscope.supervisor.forecaster import ModelsDescribed
from vramscope.supervisor.keeper import Keeper, backoff
from vramscope.worker.client import WorkerClient
from vramscope.worker.lifecycle import Exit, ExitReason
from vramscope.worker.protocol import Describe, Reset, RunStep, StepReturned

RESET_SECONDS = 30.0
TOLD_SECONDS = 1.0
FAILURE_PAUSE_SECONDS = 0.5
FAILURE_PAUSE_LIMIT_SECONDS = 30.0


class Runner:
    """Runs one plan to its end, and then the next, or until the task that awaits `run` is cancelled."""

    def __init__(self, current: CurrentPlan, keeper: Keeper, publish: Callable[[Event], None]) -> None:
        self._current = current
        self._keeper = keeper
        self._publish = publish
        self._runs = itertools.count(1)
        self._described_by: WorkerClient | None = None
        self._next: Plan | None = None
        self._is_next = asyncio.Event()
        self._unknown: frozenset[str] = frozenset()

    @property
    def _plan(self) -> Plan:
        return self._current.plan

    def adopt(self, plan: Plan) -> None:
        """Go on with this plan as soon as the step that runs now has ended."""
        self._next = plan
        self._is_next.set()

    async def run_all(self, when_over: Callable[[], None]) -> None:
        """Run the plan, then wait for a new one and run that, without end; `when_over` is called after each.

        Raises UsageError if no worker can ever start as asked.
        """
        while True:
            await self.run(self._plan.repeat)
            if not self._is_next.is_set():
                when_over()
            await self._is_next.wait()
            await self._exchange()

    async def run(self, cycles: int | None) -> Outcome:
        """Run `cycles` cycles (None: forever). Raises UsageError if no worker can ever start as asked."""
        self._tell_start(cycles)
        outcome, failures = Outcome.SUCCEEDED, 0
        for cycle in itertools.count(1) if cycles is None else range(1, cycles + 1):
            began = time.monotonic()
            ended = await self._cycle(cycle)
            if self._is_next.is_set():
                outcome = Outcome.CANCELLED
                break
            failures = 0 if ended is Outcome.SUCCEEDED else failures + 1
            if failures:
                outcome = ended
                if self._plan.on_failure is OnFailure.STOP:
                    break
            if cycle != cycles:
                await self._rest(self._pause(began, failures))
                if self._is_next.is_set():
                    outcome = Outcome.CANCELLED
                    break
        self._publish(PlanEnded(at=time.time(), outcome=outcome))
        return outcome

    def _tell_start(self, cycles: int | None) -> None:
        plan = self._plan
        self._publish(
            PlanStarted(
                at=time.time(),
                plan=plan.name,
                sha256=plan.sha256,
                path=plan.path,
                cycles=cycles,
                models=tuple(sorted(self._current.model_names())),
                steps=tuple(sorted(self._current.step_names())),
            )
        )

    async def _exchange(self) -> None:
        """Take the new plan over, with nothing left of the old one."""
        await self._unload_all(release=True)
        self._is_next.clear()
        if self._next is not None:
            self._current.adopt(self._next)
        self._next = None
        self._described_by = None
        await self._keeper.configure(self._plan)

    async def _rest(self, seconds: float) -> None:
        """Wait for the next cycle, or for a new plan."""
        if seconds:
            self._publish(CycleAwaited(at=time.time(), starts_at=time.time() + seconds))
        try:
            async with asyncio.timeout(seconds):
                await self._is_next.wait()
        except TimeoutError:
            return

    def _pause(self, began: float, failures: int) -> float:
        """Seconds until the next cycle: the plan's pace, but never a tight loop over something that fails at once."""
        pace = 0.0 if self._plan.every_seconds is None else began + self._plan.every_seconds - time.monotonic()
        rest = backoff(failures, FAILURE_PAUSE_SECONDS, FAILURE_PAUSE_LIMIT_SECONDS) if failures else 0.0
        return max(0.0, pace, rest)

    async def _cycle(self, cycle: int) -> Outcome:
        self._publish(CycleStarted(at=time.time(), cycle=cycle))
        began, outcome = time.monotonic(), Outcome.CANCELLED
        try:
            worker = await self._worker()
            began = time.monotonic()  # the first cycle's wait for its worker is none of the plan's steps
            outcome = Outcome.SUCCEEDED
            for step in walk(self._plan.steps):
                if self._is_next.is_set():
                    outcome = Outcome.CANCELLED
                    break
                answer = await self._step(cycle, step, *worker)
                await self._describe_what_came(worker[0], step, answer)
                if step.effect.action is Action.RESTART and answer.outcome is Outcome.SUCCEEDED:
                    worker = await self._worker()
                if answer.outcome is not Outcome.SUCCEEDED:
                    await self._clean_up(answer)
                    outcome = Outcome.FAILED
                    break
        except asyncio.CancelledError:
            outcome = Outcome.CANCELLED
            raise
        finally:
            self._publish(CycleEnded(at=time.time(), cycle=cycle, outcome=outcome, seconds=time.monotonic() - began))
        return outcome

    async def _worker(self) -> tuple[WorkerClient | None, str]:
        """The worker for a cycle, or why there is none. A new one is asked what the forecast needs to know."""
        try:
            client = await self._keeper.worker(self._plan)
            if client is not self._described_by and self._plan.models:
                self._unknown = frozenset(self._plan.models)
                await self._describe(client, self._unknown)
                self._described_by = client
        except WorkerError as error:
            return None, str(error)
        return client, ""

    async def _describe(self, client: WorkerClient, models: frozenset[str]) -> None:
        """Let the worker tell what the forecast needs to know of these models. Raises WorkerError."""
        told = await client.describe(Describe(run=next(self._runs), models=tuple(sorted(models))))
        self._publish(ModelsDescribed(at=time.time(), orders=told.orders, problems=told.problems))
        self._unknown -= told.orders.keys()

    async def _describe_what_came(self, client: WorkerClient | None, step: Step, answer: StepReturned) -> None:
        """A model that was not here before may be here after a step that needed its files."""
        new = self._unknown & {step.effect.model}
        if client is None or not new or answer.outcome is not Outcome.SUCCEEDED:
            return
        with contextlib.suppress(WorkerError):  # the next step tells of it
            await self._describe(client, frozenset(new))

    async def _step(self, cycle: int, step: Step, client: WorkerClient | None, problem: str) -> StepReturned:
        """Run one step on the cycle's worker, and tell of it; without a worker the step fails with `problem`."""
        if client is not None and client.exited.done():
            problem = f"{client.exited.result().detail} between two steps, with the models that it held"
        model = step.effect.model or getattr(step.fields, "model", "")
        self._publish(
            StepStarted(
                at=time.time(),
                step=step.name,
                kind=step.kind,
                model=model,
                cycle=cycle,
                line=step.line,
                changes_memory=step.effect.action is not Action.NOTHING,
            )
        )
        began = time.monotonic()
        answer = StepReturned(run=0, outcome=Outcome.CANCELLED)
        try:
            if client is None or problem:
                answer = StepReturned(run=0, outcome=Outcome.FAILED, error=problem)
            else:
                answer = await self._ask(client, step, model)
                await self._heed(step, answer)
        finally:
            self._publish(
                StepEnded(
                    at=time.time(),
                    step=step.name,
                    kind=step.kind,
                    model=model,
                    cycle=cycle,
                    outcome=answer.outcome,
                    seconds=time.monotonic() - began,
                    error=answer.error,
                    facts=answer.facts,
                )
            )
        return answer

    async def _heed(self, step: Step, answer: StepReturned) -> None:
        """Do what a step's answer asks of the supervisor."""
        if SOURCE_CHANGED in answer.facts:
            self._described_by = None  # the next cycle asks again
        if step.effect.action is Action.RESTART and answer.outcome is Outcome.SUCCEEDED:
            await self._keeper.stop()

    async def _ask(self, client: WorkerClient, step: Step, model: str) -> StepReturned:
        """The worker's answer; its death and a passed timeout are answers too."""
        run = next(self._runs)
        fields = step.fields.model_dump(mode="json", exclude_unset=True)
        command = RunStep(run=run, step=step.name, kind=step.kind, model=model, fields=fields)
        request = asyncio.create_task(client.request(run, command))
        try:
            done, _ = await asyncio.wait({request}, timeout=step.timeout_seconds)
            if not done:
                trouble = await self._stopped(client, run, request)
                error = f"not done after its timeout of {step.timeout_seconds:g} s{trouble}"
                return StepReturned(run=run, outcome=Outcome.TIMED_OUT, error=error)
            return request.result()
        except WorkerError as error:
            return StepReturned(run=run, outcome=Outcome.FAILED, error=str(error))
        except asyncio.CancelledError:
            await client.cancel(run)
            raise
        finally:
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)

    @staticmethod
    async def _stopped(client: WorkerClient, run: int, request: asyncio.Task[StepReturned]) -> str:
        """Stop a step; a clause of what it was in trouble with, or that it did not stop."""
        if not await client.cancel(run):
            return "; it did not stop when asked, so the worker was killed"
        await asyncio.wait({request}, timeout=TOLD_SECONDS)  # its answer has come, or the worker has ended
        trouble = request.result().error if request.done() and request.exception() is None else ""
        return f"; {trouble}" if trouble else ""

    async def _clean_up(self, answer: StepReturned) -> None:
        """After a failed step nothing stays loaded: the next cycle starts from the plan's first step."""
        if answer.fatal:
            detail = "CUDA failed for good in this process, which was ended"
            await self._keeper.discard(Exit(reason=ExitReason.STICKY_ERROR, detail=detail))
            return
        await self._unload_all()

    async def _unload_all(self, *, release: bool = False) -> None:
        client = self._keeper.client
        if client is None or not client.usable:
            return
        run = next(self._runs)
        try:
            # Not wait_for: Python 3.11's loses a cancellation that arrives together with the answer.
            async with asyncio.timeout(RESET_SECONDS):
                await client.request(run, Reset(run=run, release=release))
        except WorkerError:
            return  # it is gone, and with it what it held
        except TimeoutError:
            detail = f"the worker did not unload its models within {RESET_SECONDS:g} s and was killed"
            await self._keeper.discard(Exit(reason=ExitReason.UNSTOPPABLE, detail=detail))

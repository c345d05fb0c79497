"""Keeps a worker alive: starts one when it is needed, with growing pauses while they keep dying."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import replace

from vramscope.errors import UsageError, WorkerError
from vramscope.events import Event, WorkerExited, WorkerStarted
from vramscope.memory.host import oom_kills
from vramscope.memory.snapshot import WorkerReady
from vramscope.plan.schema import Plan
from vramscope.settings import Deadlines, DeviceMode, WorkerSettings
from vramscope.worker.client import WorkerClient
from vramscope.worker.lifecycle import Exit, ExitReason
from vramscope.worker.protocol import Configure


def backoff(failures: int, first: float, limit: float) -> float:
    """Seconds to wait after this many failures in a row: `first`, then doubling up to the limit."""
    doublings = min(failures - 1, 30)
    return min(first * (1 << doublings), limit)


class Keeper:
    """Owns at most one worker at a time, and tells about each birth and death."""

    def __init__(self, settings: WorkerSettings, deadlines: Deadlines, publish: Callable[[Event], None]) -> None:
        self._settings = settings
        self._deadlines = deadlines
        self._publish = publish
        self._client: WorkerClient | None = None
        self._burial: asyncio.Task[None] | None = None
        self._to_end: WorkerClient | None = None
        self._closed = False
        self._reason = ""
        self._failures = 0

    @property
    def client(self) -> WorkerClient | None:
        return self._client

    async def worker(self, plan: Plan) -> WorkerClient:
        """A worker that is ready and knows the plan's models; starts one if there is none.

        Raises WorkerError when a new one does not become ready, UsageError when the first one refuses to start.
        """
        if self._closed:
            raise WorkerError("the run is ending")
        if self._client is not None and self._client.usable:
            return self._client
        if self._burial is not None:
            await self._burial
        await asyncio.sleep(self._pause())
        self._client = await self._start(plan)
        self._failures = 0
        return self._client

    async def _start(self, plan: Plan) -> WorkerClient:
        self._failures += 1
        client = await WorkerClient.spawn(self._settings_for(plan), self._deadlines, self._tell)
        self._publish(WorkerStarted(at=time.time(), pid=client.pid))
        self._client = client
        self._burial = asyncio.create_task(self._bury(client, self._oom_kills()))
        try:
            ready = await client.wait_ready()
            await client.send(Configure(models=plan.models, device=plan.device))
        except WorkerError:
            await client.stop()
            raise
        except UsageError as error:
            if self._reason:  # it could start before: the machine has changed, not the command line
                raise WorkerError(str(error)) from None
            raise
        self._stay_with(ready)
        return client

    async def configure(self, plan: Plan) -> None:
        """Tell a worker that is there about the models of a new plan; one that is started later is told then."""
        if self._client is not None and self._client.usable:
            with contextlib.suppress(WorkerError):  # it went away just now
                await self._client.send(Configure(models=plan.models, device=plan.device))

    def _settings_for(self, plan: Plan) -> WorkerSettings:
        """The settings, with the model whose files the worker may read while it imports."""
        first = plan.first_loaded
        if first is None:
            return self._settings
        return replace(self._settings, first_source=first.source, first_revision=first.revision)

    def _stay_with(self, ready: WorkerReady) -> None:
        """Keep to the first worker's choice: figures of a real and of a simulated device must never mix in a run."""
        self._reason = self._reason or ready.reason
        self._settings = replace(self._settings, device_mode=DeviceMode(ready.backend))

    def _tell(self, event: Event) -> None:
        """Publish what a worker says; a later one was told what to choose, so the first one's reason stands."""
        if isinstance(event, WorkerReady) and self._reason:
            event = replace(event, reason=self._reason)
        self._publish(event)

    async def stop(self) -> None:
        """End the worker, if there is one, and wait until its end was told; the next need starts a new one."""
        self._to_end = self._client
        if self._client is not None and not self._client.exited.done():
            await self._client.stop()
        if self._burial is not None:
            await self._burial

    async def close(self) -> None:
        """End the worker for good."""
        self._closed = True
        await self.stop()

    async def close_now(self) -> None:
        """End the worker for good, without asking it first."""
        self._closed = True
        self._to_end = self._client
        await self.discard()

    async def discard(self, cause: Exit | None = None) -> None:
        """End a worker that is of no use any more; the next need starts a new one."""
        if self._client is not None:
            await self._client.kill(cause)
        if self._burial is not None:
            await self._burial

    def _pause(self) -> float:
        """Seconds to wait before the next start: none at first, then doubling up to the limit."""
        if self._failures == 0:
            return 0.0
        return backoff(self._failures, self._deadlines.restart_backoff, self._deadlines.restart_backoff_limit)

    def _oom_kills(self) -> int | None:
        return oom_kills(self._settings.cgroup_root, self._settings.proc_root)

    async def _bury(self, client: WorkerClient, kills_before: int | None) -> None:
        """Wait for the worker's end and tell it; an end during our own stop is expected."""
        ended = await client.exited
        kills = self._oom_kills()
        if ended.reason is ExitReason.SIGNAL and None not in (kills, kills_before) and kills > kills_before:  # type: ignore[operator]
            detail = f"{ended.detail}, probably by the kernel's OOM killer: the memory limit was reached"
            ended = Exit(reason=ExitReason.OOM_KILLED, detail=detail)
        self._publish(
            WorkerExited(
                at=time.time(),
                pid=client.pid,
                reason=ended.reason,
                detail=ended.detail,
                expected=client is self._to_end,
            )
        )

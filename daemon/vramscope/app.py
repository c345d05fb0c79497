"""Wires everything: it alone knows all rooms. `run_plan` is a whole run, from bound sockets to the exit code."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp

from vramscope.collectors._catalog import build_registry
from vramscope.collectors._frame import Sources
from vramscope.errors import ExitCode
from vramscope.events import Bus, Event, Outcome
from vramscope.journal.watch import watch_journal
from vramscope.journal.writer import JournalWriter
from vramscope.memory.configuration import read_configuration
from vramscope.plan.schema import OnFailure, Plan
from vramscope.report.event_log import EventLog
from vramscope.report.results import ResultsBuilder
from vramscope.settings import Deadlines, WorkerSettings
from vramscope.steps._catalog import step_kinds
from vramscope.supervisor.current import CurrentPlan
from vramscope.supervisor.driver_probe import watch_driver
from vramscope.supervisor.forecaster import Forecaster
from vramscope.supervisor.keeper import Keeper
from vramscope.supervisor.probes import watch_resident
from vramscope.supervisor.reload import Reloader, ReloadError
from vramscope.supervisor.runner import Runner
from vramscope.supervisor.signals import Stop
from vramscope.supervisor.store import Store
from vramscope.web.application import WebSources, make_application
from vramscope.web.guard import Guard
from vramscope.web.lifecycle import Lifecycle
from vramscope.web.server import serve
from vramscope.worker.lifecycle import ExitReason

CANCEL_TRIES = 3


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What a run is started with. `once` runs one cycle and ends; otherwise the daemon serves until it is stopped.

    `environment` is what the worker inherits; the forecast reads the allocator's configuration from it. `guard` holds
    the web configuration, if there is one; `lifecycle` allows clients to reload and to end the run.
    """

    plan: Plan
    worker: WorkerSettings
    listeners: Sequence[socket.socket]
    environment: Mapping[str, str]
    guard: Guard | None = None
    lifecycle: bool = False
    once: bool = False
    log_events: bool = True
    journal: JournalWriter | None = None
    deadlines: Deadlines = field(default_factory=Deadlines)


class Run:
    """One run of one plan: the state, who subscribes to it, and the tasks that keep it going."""

    def __init__(self, settings: RunSettings) -> None:
        self._settings = settings
        self._bus = Bus()
        self._store = Store(time.time())
        self.results = ResultsBuilder()
        self._bus.subscribe(self._store.apply)
        self._bus.subscribe(self.results.on_event)
        if settings.log_events:
            self._bus.subscribe(EventLog().on_event)
        self._current = CurrentPlan(settings.plan)
        if settings.journal is not None:  # before the forecaster, which publishes while it is told
            self._bus.subscribe(settings.journal.on_event)
        forecaster = Forecaster(
            self._current, read_configuration(settings.environment), settings.worker.simulation, self._bus.publish
        )
        self._bus.subscribe(forecaster.on_event)
        self._keeper = Keeper(settings.worker, settings.deadlines, self._bus.publish)
        self._runner = Runner(self._current, self._keeper, self._bus.publish)
        self._reloader = Reloader(settings.plan, step_kinds(), self._runner.adopt, self._bus.publish)
        self._stop = Stop()
        self.is_quit = False  # ended by a client, where those may

    def subscribe(self, subscriber: Callable[[Event], None]) -> None:
        self._bus.subscribe(subscriber)

    def on_failure(self) -> OnFailure:
        """What a failed step means in the plan that runs now."""
        return self._current.plan.on_failure

    async def run(self, when_over: Callable[[], None]) -> ExitCode:
        """Serve and run the plan until it ends (`once`) or a signal arrives; `when_over` is called when the plan ends.

        Raises UsageError if no worker can ever start as asked.
        """
        settings = self._settings
        self._stop.install(reloads=not settings.once)
        closing, serving = asyncio.Event(), asyncio.Event()
        context = settings.guard.context() if settings.guard is not None else None
        server = asyncio.create_task(
            serve(self._application(), settings.listeners, closing, serving=serving, context=context)
        )
        beside = [asyncio.create_task(work) for work in self._beside()]
        plan = asyncio.create_task(self._run_plan(serving, when_over))
        try:
            await self._until_done(plan, server)
        finally:
            await self._wind_down(plan)
            closing.set()
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, server, return_exceptions=True)
        return self._exit_code(plan)

    def _beside(self) -> Iterator[Coroutine[Any, Any, None]]:
        """What goes on beside the plan, until the end."""
        settings = self._settings
        roots = settings.worker.cgroup_root, settings.worker.proc_root
        yield watch_resident(self._store, self._bus.publish, *roots)
        yield watch_driver(self._store, self._bus.publish, settings.environment)
        if settings.journal is not None:
            yield watch_journal(settings.journal, self._bus.publish)
        if settings.guard is not None:
            yield settings.guard.keep(self._bus.publish)
        if not settings.once:  # a single cycle is that of the plan it was started with
            yield self._reloader.watch()
            yield self._reload_when_asked()

    async def _reload_when_asked(self) -> None:
        while True:
            await self._stop.reload.wait()
            self._stop.reload.clear()
            with contextlib.suppress(ReloadError):  # which was published
                await self._reloader.reload()

    async def _run_plan(self, serving: asyncio.Event, when_over: Callable[[], None]) -> Outcome:
        await serving.wait()  # the worker's imports take a processor for seconds: the first scrape comes before
        if not self._settings.once:
            await self._runner.run_all(when_over)
        outcome = await self._runner.run(1)
        when_over()
        return outcome

    async def _until_done(self, plan: asyncio.Task[Outcome], server: asyncio.Task[None]) -> None:
        """Return when it is time to end: asked to, the plan of a single run is over, or something broke for good."""
        asked = asyncio.create_task(self._stop.requested.wait())
        try:
            await asyncio.wait({plan, asked, server}, return_when=asyncio.FIRST_COMPLETED)
            if server.done():
                server.result()
        finally:
            asked.cancel()

    async def _wind_down(self, plan: asyncio.Task[Outcome]) -> None:
        """Stop the plan in the middle of whatever it does, then the worker; a second interrupt skips the courtesy."""
        courteous = asyncio.create_task(self._stop_in_order(plan))
        forced = asyncio.create_task(self._stop.forced.wait())
        await asyncio.wait({courteous, forced}, return_when=asyncio.FIRST_COMPLETED)
        forced.cancel()
        if not courteous.done():
            await self._keeper.close_now()
        await courteous

    async def _stop_in_order(self, plan: asyncio.Task[Outcome]) -> None:
        """Cancel the plan until it heeds it, but not for ever, then end the worker."""
        for _ in range(CANCEL_TRIES):
            plan.cancel()
            await asyncio.wait({plan}, timeout=self._settings.deadlines.cancel)
            if plan.done():
                break
        await self._keeper.close()

    def _exit_code(self, plan: asyncio.Task[Outcome]) -> ExitCode:
        if self._stop.interrupted:
            return ExitCode.INTERRUPTED
        if not plan.done() or plan.cancelled():
            # A daemon that was told to end has done its work; a single cycle that was cut short has not.
            return ExitCode.TERMINATED if self._settings.once else ExitCode.OK
        succeeded = plan.result() is Outcome.SUCCEEDED
        return ExitCode.OK if succeeded or not self._settings.once else ExitCode.USER

    def _application(self) -> ASGIApp:
        sources = Sources(
            state=lambda: self._store.state,
            clock=time.time,
            model_names=self._current.model_names,
            step_names=self._current.step_names,
            step_kinds=frozenset(step_kinds()),
            exit_reasons=frozenset(ExitReason),
        )
        registry, on_event = build_registry(sources)
        self._bus.subscribe(on_event)
        web = WebSources(
            collect=registry.collect,
            state=lambda: self._store.state,
            results=lambda: [row.as_json() for row in self.results.rows()],
            clock=time.time,
            targets=self._current.waits,
        )
        lifecycle = Lifecycle(reload=self._reload, quit=self._quit)
        return make_application(web, lifecycle if self._settings.lifecycle else None, self._settings.guard)

    def _quit(self) -> None:
        self.is_quit = True
        self._stop.requested.set()

    async def _reload(self) -> None:
        if self._settings.once:
            raise ReloadError("a run of one cycle keeps the plan that it was started with")
        await self._reloader.reload()

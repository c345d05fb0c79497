"""Wires everything: it alone knows all rooms. `run_plan` is a whole run, from bound sockets to the exit code."""

import asyncio
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from starlette.types import ASGIApp

from vramscope.collectors._catalog import build_registry
from vramscope.collectors._frame import Sources
from vramscope.errors import ExitCode
from vramscope.events import Bus, Event, Outcome
from vramscope.memory.configuration import read_configuration
from vramscope.plan.schema import Plan, named_steps
from vramscope.report.event_log import EventLog
from vramscope.report.results import ResultsBuilder
from vramscope.settings import Deadlines, WorkerSettings
from vramscope.steps._catalog import step_kinds
from vramscope.steps.wait import WaitFields
from vramscope.supervisor.driver_probe import watch_driver
from vramscope.supervisor.forecaster import Forecaster
from vramscope.supervisor.keeper import Keeper
from vramscope.supervisor.probes import watch_resident
from vramscope.supervisor.runner import Runner
from vramscope.supervisor.service import ServiceManager
from vramscope.supervisor.signals import Stop
from vramscope.supervisor.store import Store
from vramscope.web.application import WebSources, make_application
from vramscope.web.server import serve
from vramscope.worker.lifecycle import ExitReason

CANCEL_TRIES = 3


@dataclass(frozen=True, kw_only=True)
class RunSettings:
    """What a run is started with. `once` runs one cycle and ends; otherwise the daemon serves until it is stopped.

    `environment` is what the worker inherits; the forecast reads the allocator's configuration from it.
    """

    plan: Plan
    worker: WorkerSettings
    listeners: Sequence[socket.socket]
    environment: Mapping[str, str]
    once: bool = False
    log_events: bool = True
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
        forecaster = Forecaster(
            settings.plan, read_configuration(settings.environment), settings.worker.simulation, self._bus.publish
        )
        self._bus.subscribe(forecaster.on_event)
        self._manager = ServiceManager(settings.environment)
        self._bus.subscribe(self._manager.on_event)
        self._keeper = Keeper(settings.worker, settings.deadlines, self._bus.publish)
        self._stop = Stop()

    def subscribe(self, subscriber: Callable[[Event], None]) -> None:
        self._bus.subscribe(subscriber)

    async def run(self, when_over: Callable[[], None]) -> ExitCode:
        """Serve and run the plan until it ends (`once`) or a signal arrives; `when_over` is called when the plan ends.

        Raises UsageError if no worker can ever start as asked.
        """
        self._stop.install()
        closing, serving = asyncio.Event(), asyncio.Event()
        server = asyncio.create_task(serve(self._application(), self._settings.listeners, closing, serving=serving))
        roots = self._settings.worker.cgroup_root, self._settings.worker.proc_root
        probes = [
            asyncio.create_task(watch_resident(self._store, self._bus.publish, *roots)),
            asyncio.create_task(watch_driver(self._store, self._bus.publish, self._settings.environment)),
            asyncio.create_task(self._manager.watch(serving)),
        ]
        plan = asyncio.create_task(self._run_plan(serving, when_over))
        try:
            await self._until_done(plan, server)
        finally:
            self._manager.stopping()
            await self._wind_down(plan)
            closing.set()
            for probe in probes:
                probe.cancel()
            await asyncio.gather(*probes, server, return_exceptions=True)
        return self._exit_code(plan)

    async def _run_plan(self, serving: asyncio.Event, when_over: Callable[[], None]) -> Outcome:
        await serving.wait()  # the worker's imports take a processor for seconds: the first scrape comes before
        plan = self._settings.plan
        runner = Runner(plan, self._keeper, self._bus.publish)
        outcome = await runner.run(1 if self._settings.once else plan.repeat)
        when_over()
        return outcome

    async def _until_done(self, plan: asyncio.Task[Outcome], server: asyncio.Task[None]) -> None:
        """Return when it is time to end: asked to, the plan of a single run is over, or something broke for good."""
        asked = asyncio.create_task(self._stop.requested.wait())
        try:
            await asyncio.wait({plan, asked, server}, return_when=asyncio.FIRST_COMPLETED)
            if plan.done() and plan.exception() is None and not self._settings.once:
                await asyncio.wait({asked, server}, return_when=asyncio.FIRST_COMPLETED)
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
        plan = self._settings.plan
        steps = tuple(named_steps(plan.steps))
        models = frozenset(plan.models)
        waits = {step.name: step.fields.duration for step in steps if isinstance(step.fields, WaitFields)}
        step_names = frozenset(step.name for step in steps)
        sources = Sources(
            state=lambda: self._store.state,
            clock=time.time,
            model_names=lambda: models,
            step_names=lambda: step_names,
            step_kinds=frozenset(step_kinds()),
            exit_reasons=frozenset(ExitReason),
        )
        registry, on_event = build_registry(sources)
        self._bus.subscribe(on_event)
        return make_application(
            WebSources(
                collect=registry.collect,
                state=lambda: self._store.state,
                results=lambda: [row.as_json() for row in self.results.rows()],
                clock=time.time,
                targets=lambda: waits,
            )
        )

"""What scrape_under_load.py compares with: the plan's steps in a thread beside the event loop that serves the metrics.

The web application, the collectors and the steps are vramscope's own; only the border between two processes is missing.
"""

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from vramscope.app import Run, RunSettings
from vramscope.events import Event, Outcome, StepEnded, StepStarted
from vramscope.plan.parse import load_plan
from vramscope.plan.schema import Plan, named_steps
from vramscope.settings import DeviceMode, SimulationSettings, WorkerSettings, default_cache, default_hub_cache
from vramscope.steps._catalog import step_kinds
from vramscope.web.server import bind, parse_address, serve
from vramscope.worker.process import _open_bench
from vramscope.worker.protocol import RunStep
from vramscope.worker.reporter import Reporter


def run_steps(plan: Plan, settings: WorkerSettings, publish: Callable[[Event], None]) -> None:
    """Run the plan's steps back to back, for ever, as the worker process does."""
    from vramscope.worker.bench import StepBench

    bench, ready = _open_bench(settings)
    publish(ready)
    bench.specs, bench.default_device = dict(plan.models), plan.device
    kinds = step_kinds()
    while True:
        for step in named_steps(plan.steps):
            model = step.effect.model or ""
            about = {"step": step.name, "kind": step.kind, "model": model}
            publish(StepStarted(at=time.time(), cycle=1, line=step.line, **about))
            began = time.monotonic()
            reporter = Reporter(RunStep(run=1, fields={}, **about), publish)
            kinds[step.kind].run(StepBench(bench, reporter), step.fields)
            seconds = time.monotonic() - began
            publish(bench.memory())
            publish(StepEnded(at=time.time(), cycle=1, outcome=Outcome.SUCCEEDED, seconds=seconds, **about))


async def serve_and_load(plan: Plan, address: str) -> None:
    """Serve the run's metrics on this thread while another one runs the steps."""
    settings = WorkerSettings(
        device_mode=DeviceMode.SIMULATED,
        simulation=SimulationSettings(bandwidth_bytes_per_second=0),
        cache=default_cache(os.environ),
        hub_cache=default_hub_cache(os.environ),
    )
    listeners = bind([parse_address(address)])
    run = Run(
        RunSettings(plan=plan, worker=settings, listeners=listeners, environment=dict(os.environ), log_events=False)
    )
    loop = asyncio.get_running_loop()

    def publish(event: Event) -> None:
        loop.call_soon_threadsafe(run._bus.publish, event)

    threading.Thread(target=run_steps, args=(plan, settings, publish), daemon=True).start()
    await serve(run._application(), listeners, asyncio.Event())


if __name__ == "__main__":
    asyncio.run(serve_and_load(load_plan(Path(sys.argv[1]), step_kinds()), sys.argv[2]))

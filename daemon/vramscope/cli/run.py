"""`vramscope run PLAN`: run a plan and serve what it shows."""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from rich.console import Console

from vramscope import logs
from vramscope.app import Run, RunSettings
from vramscope.cli import _simulation as simulation
from vramscope.plan.parse import load_plan
from vramscope.report.live import Narrator
from vramscope.report.table import print_results
from vramscope.settings import DeviceMode, WorkerSettings, default_cache, default_hub_cache
from vramscope.steps._catalog import step_kinds
from vramscope.web.server import bind, parse_address, url

HELP = "run a plan, and serve its metrics and its page"
DEFAULT_LISTEN = "127.0.0.1:10089"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` takes."""
    parser.add_argument("plan", type=Path, metavar="PLAN", help="the plan file (YAML)")
    parser.add_argument("--once", action="store_true", help="run one cycle, print the results table, and end")
    parser.add_argument(
        "--device",
        type=DeviceMode,
        choices=list(DeviceMode),
        default=DeviceMode.AUTO,
        help="auto takes CUDA where torch sees it, and else simulates (default: auto)",
    )
    parser.add_argument(
        "--listen",
        action="append",
        metavar="ADDR",
        help=f"host:port to serve on; may be given several times (default: {DEFAULT_LISTEN})",
    )
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument(
        "--log-level", choices=("debug", "info", "warning", "error"), default="error", help="default: error"
    )
    parser.add_argument("--quiet", action="store_true", help="do not narrate on standard output; the log remains")
    simulation.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the plan to its end, or until a signal; returns the exit code."""
    plan = load_plan(arguments.plan, step_kinds())
    worker = WorkerSettings(
        device_mode=arguments.device,
        simulation=simulation.settings(arguments),
        cache=default_cache(os.environ),
        hub_cache=default_hub_cache(os.environ),
    )
    logs.configure(arguments.log_format, arguments.log_level.upper(), sys.stderr)
    # Bound before anything else starts: a taken port must not be found out after a plan has begun.
    listeners = bind([parse_address(text) for text in arguments.listen or [DEFAULT_LISTEN]])
    console = Console()
    session = Run(
        RunSettings(plan=plan, worker=worker, listeners=listeners, environment=os.environ, once=arguments.once)
    )
    narrator = Narrator(console, tuple(url(listener) for listener in listeners))
    if not arguments.quiet:
        session.subscribe(narrator.on_event)

    def when_over() -> None:
        narrator.close()
        print_results(session.results.rows(), console)
        if not (arguments.once or arguments.quiet):
            console.print("the plan is done; serving until interrupted (Ctrl-C)", highlight=False)

    try:
        return asyncio.run(session.run(when_over))
    finally:
        narrator.close()

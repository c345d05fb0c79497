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
from vramscope.report.aside import Aside
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
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="log from this level on (default: warning, and no line for what is narrated anyway)",
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
    listener = logs.configure(arguments.log_format, (arguments.log_level or "warning").upper(), sys.stderr)
    # Bound before anything else starts: a taken port must not be found out after a plan has begun.
    listeners = bind([parse_address(text) for text in arguments.listen or [DEFAULT_LISTEN]])
    settings = RunSettings(
        plan=plan,
        worker=worker,
        listeners=listeners,
        environment=os.environ,
        once=arguments.once,
        log_events=arguments.quiet or arguments.log_level is not None,
    )
    session = Run(settings)
    console, aside = Console(), Aside()
    narrator = Narrator(console, tuple(url(each) for each in listeners))
    if not arguments.quiet:
        session.subscribe(aside.subscriber(narrator.on_event))

    def show_results() -> None:
        narrator.close()
        print_results(session.results.rows(), console)
        if not (arguments.once or arguments.quiet):
            console.print("the plan is done; serving until interrupted (Ctrl-C)", highlight=False)

    try:
        code = asyncio.run(session.run(lambda: aside.do(show_results)))
    finally:
        aside.do(narrator.close)
        written = aside.close() and listener.close()
    if not written:  # the interpreter's own end would wait for a reader that may never come
        os._exit(code)
    return code

"""`vramscope run PLAN`: run a plan and serve what it shows."""

import argparse
import asyncio
import os
import sys
from pathlib import Path

from rich.console import Console

from vramscope import logs
from vramscope.app import Run, RunSettings
from vramscope.errors import UsageError
from vramscope.plan.parse import load_plan
from vramscope.report.live import Narrator
from vramscope.report.table import print_results
from vramscope.settings import (
    DEFAULT_BANDWIDTH_BYTES_PER_SECOND,
    DEFAULT_CAPACITY_BYTES,
    DEFAULT_CONTEXT_BYTES,
    DeviceMode,
    SimulationSettings,
    WorkerSettings,
    default_cache,
    default_hub_cache,
)
from vramscope.steps._catalog import step_kinds
from vramscope.units import format_bytes, parse_bytes
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
    simulated = parser.add_argument_group("simulated device")
    simulated.add_argument(
        "--capacity",
        action="append",
        default=[],
        metavar="DEVICE=SIZE",
        help=f"a simulated device and its memory (default: cuda:0={format_bytes(DEFAULT_CAPACITY_BYTES)})",
    )
    simulated.add_argument(
        "--context",
        default=str(DEFAULT_CONTEXT_BYTES),
        metavar="SIZE",
        help=f"what a CUDA context takes (default: {format_bytes(DEFAULT_CONTEXT_BYTES)})",
    )
    simulated.add_argument("--other-use", default="0", metavar="SIZE", help="what other processes take (default: 0)")
    simulated.add_argument(
        "--bandwidth",
        default=str(DEFAULT_BANDWIDTH_BYTES_PER_SECOND),
        metavar="SIZE",
        help="bytes a second that a copy moves; 0 copies in no time "
        f"(default: {format_bytes(DEFAULT_BANDWIDTH_BYTES_PER_SECOND)})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the plan to its end, or until a signal; returns the exit code."""
    plan = load_plan(arguments.plan, step_kinds())
    worker = WorkerSettings(
        device_mode=arguments.device,
        simulation=_simulation(arguments),
        cache=default_cache(os.environ),
        hub_cache=default_hub_cache(os.environ),
    )
    logs.configure(arguments.log_format, arguments.log_level.upper(), sys.stderr)
    # Bound before anything else starts: a taken port must not be found out after a plan has begun.
    listeners = bind([parse_address(text) for text in arguments.listen or [DEFAULT_LISTEN]])
    console = Console()
    session = Run(RunSettings(plan=plan, worker=worker, listeners=listeners, once=arguments.once))
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


def _simulation(arguments: argparse.Namespace) -> SimulationSettings:
    capacity = dict(_device_size(text) for text in arguments.capacity)
    return SimulationSettings(
        capacity_bytes=capacity or {"cuda:0": DEFAULT_CAPACITY_BYTES},
        context_bytes=_size("--context", arguments.context),
        other_bytes=_size("--other-use", arguments.other_use),
        bandwidth_bytes_per_second=_size("--bandwidth", arguments.bandwidth),
    )


def _device_size(text: str) -> tuple[str, int]:
    device, equals, size = text.partition("=")
    if not equals or not device.startswith("cuda:") or not device.removeprefix("cuda:").isdigit():
        raise UsageError(f"--capacity: {text!r} is not DEVICE=SIZE", hint="for example --capacity cuda:0=12GiB")
    return device, _size("--capacity", size)


def _size(option: str, text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None

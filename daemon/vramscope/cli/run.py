"""`vramscope run PLAN`: run a plan and serve what it shows.

Standard output has what people read: the narration and the results table, and nothing with --quiet. Standard error has
the log.
"""

import argparse
import asyncio
import functools
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from vramscope import logs
from vramscope.app import Run, RunSettings
from vramscope.cli import _simulation as simulation
from vramscope.cli._output import silence
from vramscope.plan.parse import load_plan
from vramscope.report.aside import Aside
from vramscope.report.event_log import SimulationWarning
from vramscope.settings import (
    CGROUP_ROOT,
    PROC_ROOT,
    DeviceMode,
    WorkerSettings,
    default_cache,
    default_hub_cache,
    is_offline,
)
from vramscope.steps._catalog import step_kinds
from vramscope.web.server import bind, parse_address, url

if TYPE_CHECKING:
    from collections.abc import Callable

    from vramscope.cli._narration import Narration

logger = logging.getLogger(__name__)

HELP = "run a plan, and serve its metrics and its page"
DEFAULT_LISTEN = "127.0.0.1:10089"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `run` takes."""
    parser.add_argument("plan", type=Path, metavar="PLAN", help="the plan file (YAML)")
    parser.add_argument("--once", action="store_true", help="run one cycle, print the results table, and end")
    parser.add_argument(
        "--listen",
        action="append",
        metavar="ADDR",
        help="host:port to serve on, such as 0.0.0.0:10089 in a container; may be given several times "
        f"(default: {DEFAULT_LISTEN})",
    )
    parser.add_argument("--log-format", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="log from this level on (default: warning, and no line for what is narrated anyway)",
    )
    parser.add_argument(
        "--quiet",
        action="store_true",
        help="nothing on standard output, neither narration nor results table; the log on standard error remains, "
        "from warnings (such as a failed step) on",
    )
    group = parser.add_argument_group("memory limit of the host")
    group.add_argument(
        "--cgroup-root",
        type=_directory,
        default=CGROUP_ROOT,
        metavar="DIR",
        help=f"where control groups are mounted (default: {CGROUP_ROOT})",
    )
    group.add_argument(
        "--proc-root",
        type=_directory,
        default=PROC_ROOT,
        metavar="DIR",
        help=f"where meminfo and self/cgroup are (default: {PROC_ROOT})",
    )
    simulation.add_arguments(parser)


def _directory(text: str) -> Path:
    path = Path(text).absolute()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is no directory")
    return path


def run(arguments: argparse.Namespace) -> int:
    """Run the plan to its end, or until a signal; returns the exit code."""
    log = logs.configure(arguments.log_format, (arguments.log_level or "warning").upper(), sys.stderr)
    settings = _settings(arguments)
    session, aside = Run(settings), Aside()
    urls = tuple(url(listener) for listener in settings.listeners)

    @functools.cache
    def narration() -> "Narration":
        """Made when there is something to say, in the thread that says it: the imports would keep the page waiting."""
        from vramscope.cli._narration import Narration  # noqa: PLC0415 - as above

        on_failure = settings.plan.on_failure
        return Narration(
            session.results.rows, urls, settings.worker.device_mode, once=arguments.once, on_failure=on_failure
        )

    def say(work: "Callable[[Narration], None]") -> None:
        if not arguments.quiet:
            aside.do(lambda: work(narration()))

    if settings.worker.device_mode is DeviceMode.AUTO:
        session.subscribe(SimulationWarning().on_event)
    session.subscribe(lambda event: say(lambda told: told.on_event(event)))
    try:
        code = asyncio.run(session.run(lambda: say(lambda told: told.plan_is_over())))
        say(lambda told: told.goodbye(code))
    finally:
        say(lambda told: told.close())
        written = _written(aside, log)
    if not written:  # the interpreter's own end would wait for a reader that may never come
        os._exit(code)
    return code


def _settings(arguments: argparse.Namespace) -> RunSettings:
    """What the arguments ask for. The addresses are bound here: a taken port must not be found out after a start."""
    plan = load_plan(arguments.plan, step_kinds())
    worker = WorkerSettings(
        device_mode=simulation.device_mode(arguments),
        simulation=simulation.settings(arguments),
        cache=default_cache(os.environ),
        hub_cache=default_hub_cache(os.environ),
        offline=is_offline(os.environ),
        cgroup_root=arguments.cgroup_root,
        proc_root=arguments.proc_root,
    )
    return RunSettings(
        plan=plan,
        worker=worker,
        listeners=bind([parse_address(text) for text in arguments.listen or [DEFAULT_LISTEN]]),
        environment=os.environ,
        once=arguments.once,
        log_events=arguments.quiet or arguments.log_level is not None,
    )


def _written(aside: Aside, log: logs.Listener) -> bool:
    """Let what waits be written; False if a reader blocks it."""
    written = aside.close()
    if aside.is_broken:
        silence(sys.stdout)
        if aside.why:
            logger.warning("standard_output_lost", extra={"reason": aside.why})
    return log.close() and written

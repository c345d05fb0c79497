"""`vramscope run PLAN`: run a plan and serve what it shows.

Standard output has what people read: the narration and the results table, and nothing with --quiet. Standard error has
the log.
"""

import argparse
import asyncio
import logging
import os
import sys
from pathlib import Path

from rich.console import Console

from vramscope import logs
from vramscope.app import Run, RunSettings
from vramscope.cli import _simulation as simulation
from vramscope.cli._output import silence, terminal
from vramscope.errors import ExitCode
from vramscope.events import Outcome
from vramscope.plan.parse import load_plan
from vramscope.plan.schema import OnFailure
from vramscope.report.aside import Aside
from vramscope.report.event_log import SimulationWarning
from vramscope.report.live import Narrator
from vramscope.report.table import print_results
from vramscope.settings import DeviceMode, WorkerSettings, default_cache, default_hub_cache
from vramscope.steps._catalog import step_kinds
from vramscope.web.server import bind, parse_address, url

logger = logging.getLogger(__name__)

HELP = "run a plan, and serve its metrics and its page"
DEFAULT_LISTEN = "127.0.0.1:10089"
SERVING = "serving until interrupted (Ctrl-C)"


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
    simulation.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Run the plan to its end, or until a signal; returns the exit code."""
    plan = load_plan(arguments.plan, step_kinds())
    mode = simulation.device_mode(arguments)
    worker = WorkerSettings(
        device_mode=mode,
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
    if mode is DeviceMode.AUTO:
        session.subscribe(SimulationWarning().on_event)
    console, aside = terminal(os.environ), Aside()
    narrator = Narrator(console, tuple(url(each) for each in listeners), mode)
    ending = _Ending(session, narrator, console, settings)
    if not arguments.quiet:
        session.subscribe(aside.subscriber(narrator.on_event))
    try:
        code = asyncio.run(session.run(lambda: None if arguments.quiet else aside.do(ending.plan_is_over)))
        if not arguments.quiet:
            aside.do(lambda: ending.goodbye(code))
    finally:
        aside.do(narrator.close)
        written = aside.close()
        if aside.is_broken:
            silence(sys.stdout)
            if aside.why:
                logger.warning("standard_output_lost", extra={"reason": aside.why})
        written = listener.close() and written
    if not written:  # the interpreter's own end would wait for a reader that may never come
        os._exit(code)
    return code


class _Ending:
    """What is said when the plan is over, and when the run is."""

    def __init__(self, session: Run, narrator: Narrator, console: Console, settings: RunSettings) -> None:
        self._session = session
        self._narrator = narrator
        self._console = console
        self._settings = settings
        self._is_told = False

    def plan_is_over(self) -> None:
        self._show_results()
        if self._settings.once:
            return
        if self._narrator.outcome is Outcome.SUCCEEDED:
            self._narrator.say(f"the plan is done; {SERVING}")
        elif self._settings.plan.on_failure is OnFailure.STOP:
            self._narrator.say(f"stopped at a failure; {SERVING}")
        else:
            self._narrator.say(f"the plan is done, but not every cycle succeeded; {SERVING}")

    def goodbye(self, code: ExitCode) -> None:
        """The results, if there was no occasion yet, and a line where somebody ended the run."""
        if not self._is_told:
            self._show_results()
        if code is ExitCode.INTERRUPTED:
            self._narrator.say("ended by Ctrl-C; goodbye")
        elif code is ExitCode.TERMINATED or not self._settings.once:
            self._narrator.say("ended by SIGTERM; goodbye")

    def _show_results(self) -> None:
        self._is_told = True
        self._narrator.close()
        print_results(self._session.results.rows(), self._console)

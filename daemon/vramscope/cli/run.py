"""`vramscope run PLAN`: run a plan and serve what it shows.

Standard output has what people read: the narration and the results table, and nothing with --quiet. Standard error has
the log. A run never ends because of its standard output. A reader that goes away has read enough, which is no error. A
disk that is full is one for --once, whose table is lost then, and a warning for a daemon, whose metrics tell the same.
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
from vramscope.cli._output import complain, silence
from vramscope.errors import ExitCode
from vramscope.journal.file import JournalFile, Limits
from vramscope.journal.writer import JournalWriter
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
    forbidden_downloads,
)
from vramscope.steps._catalog import step_kinds
from vramscope.units import parse_bytes, parse_count
from vramscope.web.guard import Guard
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
    _add_web(parser)
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
    _add_journal(parser)
    _add_host(parser)
    simulation.add_arguments(parser)


def _add_web(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen",
        action="append",
        metavar="ADDR",
        help="host:port to serve on, such as 0.0.0.0:10089 in a container; may be given several times "
        f"(default: {DEFAULT_LISTEN})",
    )
    parser.add_argument(
        "--web-config",
        "--web.config.file",
        type=Path,
        metavar="FILE",
        help="TLS, client certificates and basic auth, in the format of Prometheus' exporters; followed on change",
    )
    parser.add_argument(
        "--web.enable-lifecycle",
        dest="lifecycle",
        action="store_true",
        help="let clients reload the plan (POST /-/reload) and end the daemon (POST /-/quit)",
    )


def _add_host(parser: argparse.ArgumentParser) -> None:
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


def _add_journal(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("journal")
    group.add_argument(
        "--journal",
        type=Path,
        metavar="FILE",
        help="append what happens to this file, for `vramscope report`; a full one becomes FILE.1, and so on",
    )
    group.add_argument(
        "--journal-size", type=_bytes, default="64MiB", metavar="SIZE", help="when a file is full (default: 64MiB)"
    )
    group.add_argument(
        "--journal-files", type=_count, default="4", metavar="N", help="how many files are kept in all (default: 4)"
    )


def _bytes(text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _count(text: str) -> int:
    try:
        return parse_count(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _journal(arguments: argparse.Namespace) -> JournalWriter | None:
    """The journal, open. Raises UsageError if it can never be written."""
    if arguments.journal is None:
        return None
    limits = Limits(file_bytes=arguments.journal_size, files=arguments.journal_files)
    file = JournalFile(arguments.journal.absolute(), limits)
    file.start()
    return JournalWriter(file)


def _directory(text: str) -> Path:
    path = Path(text).absolute()
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is no directory")
    return path


def run(arguments: argparse.Namespace) -> int:
    """Run the plan to its end, or until a signal; returns the exit code."""
    log = logs.configure(arguments.log_format, (arguments.log_level or "warning").upper(), sys.stderr)
    try:
        return _run(arguments, log)
    finally:
        log.close()


def _run(arguments: argparse.Namespace, log: logs.Listener) -> int:
    settings = _settings(arguments)
    session, aside = Run(settings), Aside(_ignore if arguments.once else _warn)
    if settings.journal is not None:
        settings.journal.start()
    tls = settings.guard is not None and settings.guard.has_tls
    urls = tuple(url(listener, tls=tls) for listener in settings.listeners)

    @functools.cache
    def narration() -> "Narration":
        """Made when there is something to say, in the thread that says it: the imports would keep the page waiting."""
        from vramscope.cli._narration import Narration  # noqa: PLC0415 - as above

        return Narration(
            session.results.rows, urls, settings.worker.device_mode, once=arguments.once, on_failure=session.on_failure
        )

    def say(work: "Callable[[Narration], None]") -> None:
        if not arguments.quiet:
            aside.do(lambda: work(narration()))

    if settings.worker.device_mode is DeviceMode.AUTO:
        session.subscribe(SimulationWarning().on_event)
    session.subscribe(lambda event: say(lambda told: told.on_event(event)))
    try:
        code = asyncio.run(session.run(lambda: say(lambda told: told.plan_is_over())))
        say(lambda told: told.goodbye(code, is_quit=session.is_quit))
    finally:
        say(lambda told: told.close())
        if settings.journal is not None:
            settings.journal.close()
        written = _written(aside, log)
    if aside.why and arguments.once:
        complain(f"cannot write to standard output: {aside.why}")
        code = code or ExitCode.USER
    if not written:  # the interpreter's own end would wait for a reader that may never come
        os._exit(code)
    return code


def _warn(why: str) -> None:
    logger.warning("standard_output_lost", extra={"reason": why})


def _ignore(_why: str) -> None:
    """What `--once` lost is told at its end."""


def _settings(arguments: argparse.Namespace) -> RunSettings:
    """What the arguments ask for. The addresses are bound here: a taken port must not be found out after a start."""
    plan = load_plan(arguments.plan, step_kinds())
    guard = Guard(arguments.web_config) if arguments.web_config is not None else None
    worker = WorkerSettings(
        device_mode=simulation.device_mode(arguments),
        simulation=simulation.settings(arguments),
        cache=default_cache(os.environ),
        hub_cache=default_hub_cache(os.environ),
        forbidden=forbidden_downloads(os.environ),
        cgroup_root=arguments.cgroup_root,
        proc_root=arguments.proc_root,
    )
    return RunSettings(
        plan=plan,
        worker=worker,
        listeners=bind([parse_address(text) for text in arguments.listen or [DEFAULT_LISTEN]]),
        environment=os.environ,
        guard=guard,
        lifecycle=arguments.lifecycle,
        once=arguments.once,
        log_events=arguments.quiet or arguments.log_level is not None,
        journal=_journal(arguments),
    )


def _written(aside: Aside, log: logs.Listener) -> bool:
    """Let what waits be written; False if a reader blocks it."""
    written = aside.close()
    if aside.is_broken:
        silence(sys.stdout)
    return log.close() and written

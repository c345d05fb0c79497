"""`vramscope doctor`: what on this machine would stop or spoil a run, and what to do about it."""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vramscope.cli._output import terminal
from vramscope.doctor._catalog import checks
from vramscope.doctor._frame import Machine, Result, State, examine
from vramscope.errors import ExitCode
from vramscope.settings import DeviceMode, default_cache, default_hub_cache

HELP = "say what on this machine would stop or spoil a run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `doctor` takes."""
    parser.add_argument(
        "--device",
        choices=[mode.value for mode in DeviceMode],
        default=DeviceMode.AUTO.value,
        help="the run that is wanted: without a usable GPU, cuda cannot start and auto simulates (default: auto)",
    )
    parser.add_argument("--online", action="store_true", help="ask the hub too; otherwise nothing uses the network")
    parser.add_argument(
        "--root",
        type=Path,
        default=Path("/"),
        metavar="DIR",
        help="where proc, sys and dev are, for example a mounted host (default: /)",
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(arguments: argparse.Namespace) -> int:
    """Print what every check found; exit code 1 if something would stop a run."""
    machine = Machine(
        environment=os.environ,
        cache=default_cache(os.environ),
        hub_cache=default_hub_cache(os.environ),
        device_mode=DeviceMode(arguments.device),
        root=arguments.root,
        online=arguments.online,
    )
    results = examine(checks(), machine)
    if arguments.format == "json":
        sys.stdout.write(json.dumps(as_json(results), indent=2) + "\n")
    else:
        from vramscope.doctor._table import print_results  # noqa: PLC0415 - JSON needs no tables

        print_results(results, terminal(os.environ))
    stops = any(result.finding.state is State.PROBLEM for result in results)
    return ExitCode.USER if stops else ExitCode.OK


def as_json(results: Sequence[Result]) -> dict[str, Any]:
    """The findings as plain values."""
    rows = [
        {
            "check": result.check,
            "title": result.title,
            **asdict(result.finding),
            "seconds": round(result.seconds, 3),
        }
        for result in results
    ]
    return {"checks": rows, "would_run": not any(row["state"] == State.PROBLEM for row in rows)}

"""`vramscope check PLAN...`: find every problem in a plan, without running it and without a GPU."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from vramscope.errors import ExitCode
from vramscope.plan.parse import load_plan
from vramscope.plan.problems import PlanError, Problem
from vramscope.plan.schema import Plan, named_steps
from vramscope.steps._catalog import step_kinds
from vramscope.units import format_count, format_seconds

HELP = "find every problem in a plan, without running it"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Plans, and how to tell about them."""
    parser.add_argument("plans", type=Path, metavar="PLAN", nargs="+", help="a plan file (YAML)")
    parser.add_argument(
        "--format",
        choices=("text", "json"),
        default="text",
        help="text: a line for each problem; json: a line with an object for each plan (default: text)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Check each plan; 1 where any has a problem."""
    kinds = step_kinds()
    code = ExitCode.OK
    for path in arguments.plans:
        problems: tuple[Problem, ...] = ()
        try:
            lines = [f"{path}: ok, {_summary(load_plan(path, kinds))}"]
        except PlanError as error:
            code, problems = ExitCode.USER, error.problems
            lines = [str(problem) for problem in problems]
        lines = [_as_json(path, problems)] if arguments.format == "json" else lines
        sys.stdout.writelines(f"{line}\n" for line in lines)
    return int(code)


def _as_json(path: Path, problems: Sequence[Problem]) -> str:
    """One plan as an object; line and column are null where the file could not be read."""
    keys = ("line", "column", "where", "message")
    listed = [{key: getattr(problem, key) for key in keys} for problem in problems]
    return json.dumps({"path": str(path), "ok": not problems, "problems": listed}, ensure_ascii=False)


def _summary(plan: Plan) -> str:
    """How much the plan is."""
    cycles = "cycles without end" if plan.repeat is None else _many(plan.repeat, "cycle")
    every = f", one every {format_seconds(plan.every_seconds)}" if plan.every_seconds is not None else ""
    return f"{_many(len(list(named_steps(plan.steps))), 'step')}, {_many(len(plan.models), 'model')}, {cycles}{every}"


def _many(count: int, word: str) -> str:
    return f"{format_count(count)} {word}{'' if count == 1 else 's'}"

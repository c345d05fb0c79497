"""`vramscope forecast PLAN`: what each step will take, before anything is loaded."""

import argparse
import asyncio
import contextlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from vramscope.anatomy.config import FILE_NAME as CONFIG
from vramscope.anatomy.hubcache import find_snapshot, is_hub_id
from vramscope.anatomy.source import SYNTHETIC
from vramscope.cli import _simulation as simulation
from vramscope.cli._output import terminal
from vramscope.errors import ExitCode, SourceError, UsageError
from vramscope.forecast.walk import Ground, PlanForecast, StepForecast, forecast_plan
from vramscope.memory.configuration import read_configuration
from vramscope.memory.snapshot import HOST
from vramscope.plan.kinds import Action
from vramscope.plan.parse import load_plan
from vramscope.plan.schema import Download, Plan, named_steps
from vramscope.report.forecast_table import print_forecast
from vramscope.settings import WorkerSettings, default_cache, default_hub_cache
from vramscope.steps._catalog import step_kinds
from vramscope.steps.fetch import STEP as FETCH
from vramscope.supervisor.survey import Survey, survey

HELP = "say what each step will take, before it is run"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `forecast` takes."""
    parser.add_argument("plan", type=Path, metavar="PLAN", help="the plan file (YAML)")
    parser.add_argument("--cycles", type=int, metavar="N", help="cycles to walk (default: until nothing changes)")
    parser.add_argument(
        "--from-config", action="store_true", help="a directory with only config.json is enough for a model"
    )
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")
    simulation.add_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print a row per step; exit code 1 if a step does not fit or nothing can be said about it."""
    if arguments.cycles is not None and arguments.cycles < 1:
        raise UsageError(f"--cycles: expected 1 or more, got {arguments.cycles}")
    plan = load_plan(arguments.plan, step_kinds())
    settings = WorkerSettings(
        device_mode=simulation.device_mode(arguments),
        simulation=simulation.settings(arguments),
        cache=default_cache(os.environ),
        hub_cache=default_hub_cache(os.environ),
    )
    known = asyncio.run(survey(plan, settings, from_config=arguments.from_config))
    configuration = read_configuration(os.environ)
    ground = Ground(orders=known.orders, budgets=known.budgets, settings=configuration.settings)
    wanted = arguments.cycles if arguments.cycles is not None else plan.repeat
    forecast = forecast_plan(plan, ground, wanted)
    notes = _notes(known, configuration.unmodelled, forecast)
    notes += _absent_notes(plan, settings.hub_cache, from_config=arguments.from_config)
    if arguments.from_config:
        notes += _config_notes(plan, known)
    if arguments.format == "json":
        sys.stdout.write(json.dumps(_as_json(plan, known, forecast, notes), indent=2) + "\n")
    else:
        print_forecast(plan, known, forecast, notes, terminal(os.environ))
    complete = forecast.first_misfit is None and not known.problems
    return ExitCode.OK if complete else ExitCode.USER


def _notes(known: Survey, unmodelled: tuple[str, ...], forecast: PlanForecast) -> list[str]:
    """What a reader has to know before trusting the rows."""
    notes = [f"model {name!r}: {problem}" for name, problem in known.problems.items()]
    notes += [f"model {name!r}: {order.basis}" for name, order in known.orders.items() if not order.exact]
    if unmodelled:
        options = ", ".join(unmodelled)
        notes.append(f"torch's allocator is configured with {options}, which is not modelled: no figure is a promise")
    return [*notes, *known.notes, *forecast.notes]


def _absent_notes(plan: Plan, hub_cache: Path, *, from_config: bool) -> Iterator[str]:
    """For each model of the hub that is not on this machine: who brings it, and how little is enough here."""
    fetched = {getattr(step.fields, "model", "") for step in named_steps(plan.steps) if step.kind == FETCH.name}
    for name, spec in plan.models.items():
        if not is_hub_id(spec.source) or Path(spec.source).exists():
            continue
        with contextlib.suppress(SourceError):
            find_snapshot(spec.source, spec.revision, hub_cache)
            continue
        if name in fetched or spec.download is Download.IF_MISSING:
            yield f"model {name!r}: a run of this plan downloads it; a forecast downloads nothing"
        if not from_config:
            at = "" if spec.revision == "main" else f" --revision {spec.revision}"
            least = f"hf download {spec.source} {CONFIG}{at}"
            yield f"model {name!r}: its config is enough for a forecast: `{least}`, and --from-config"


def _config_notes(plan: Plan, known: Survey) -> list[str]:
    """Which models go straight to a device in an order that only their files could tell."""
    loads = (step.effect for step in named_steps(plan.steps) if step.effect.action is Action.LOAD)
    straight = {load.model for load in loads if load.to != HOST}
    return [
        f"model {name!r}: without its files, a load straight to a device is taken to be in the order of a move"
        for name in sorted(straight & known.orders.keys())
        if not plan.models[name].source.startswith(SYNTHETIC)
    ]


def _as_json(plan: Plan, known: Survey, forecast: PlanForecast, notes: list[str]) -> dict[str, Any]:
    return {
        "plan": plan.name,
        "backend": known.backend,
        "steps": [_row(row) for row in forecast.steps],
        "first_misfit": asdict(forecast.first_misfit) if forecast.first_misfit else None,
        "cycles": forecast.cycles_walked,
        "period": forecast.period,
        "notes": notes,
    }


def _row(row: StepForecast) -> dict[str, Any]:
    values = asdict(row)
    levels = values.pop("levels") or {"host_bytes": None, "devices": {}}
    return values | levels

"""`vramscope schema`: the JSON Schema of the plan, so that editors complete and check plans as they are written."""

import argparse
import json
import sys

from vramscope.errors import ExitCode
from vramscope.plan.json_schema import plan_schema
from vramscope.steps._catalog import documentation, step_kinds

HELP = "print the JSON Schema of the plan, for editors"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Say what to do with it: there is nothing to choose."""
    parser.epilog = (
        "Write it beside your plans, and begin each with this line for the YAML language server (VS Code, Neovim, …): "
        "# yaml-language-server: $schema=plan.schema.json"
    )


def run(_arguments: argparse.Namespace) -> int:
    """Print the schema."""
    sys.stdout.write(text())
    return ExitCode.OK


def text() -> str:
    """The schema as a file."""
    return json.dumps(plan_schema(step_kinds(), documentation()), indent=2, ensure_ascii=False) + "\n"

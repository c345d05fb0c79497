"""All step kinds of this version, found by looking into this room."""

import inspect
import sys

from vramscope import steps
from vramscope.discovery import discover
from vramscope.steps._frame import Kind


def step_kinds() -> dict[str, Kind]:
    """Every step kind by its name in the plan; raises TypeError for two files with one name."""
    kinds: dict[str, Kind] = {}
    for module, kind in discover(steps, "STEP", Kind).items():
        if kind.name in kinds:
            raise TypeError(f"steps/{module}.py defines the step kind {kind.name!r}, which another file defines too")
        kinds[kind.name] = kind
    return kinds


def documentation() -> dict[str, str]:
    """What the file of each step kind says about it, which is written for users, by the kind's name in the plan."""
    return {name: inspect.getdoc(sys.modules[kind.fields.__module__]) or "" for name, kind in step_kinds().items()}

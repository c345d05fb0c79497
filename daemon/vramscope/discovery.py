"""Finds the plug-ins of a room: each public module is one plug-in, modules with a leading underscore are the frame."""

import importlib
import pkgutil
from types import ModuleType
from typing import TypeVar

Plugin = TypeVar("Plugin")


def discover(room: ModuleType, constant: str, kind: type[Plugin]) -> dict[str, Plugin]:
    """Return `{module name: its constant}` for every public module of `room`, in the order of their names.

    Raises TypeError for a module without the constant or with one of another type: a plug-in that is silently left
    out would be missed only when somebody needs it.
    """
    found: dict[str, Plugin] = {}
    for info in pkgutil.iter_modules(room.__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"{room.__name__}.{info.name}")
        plugin = getattr(module, constant, None)
        if not isinstance(plugin, kind):
            raise TypeError(f"{module.__name__} must define {constant} as {kind.__name__}, found {plugin!r}")
        found[info.name] = plugin
    return found

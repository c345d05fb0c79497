"""Finds the checks of this room."""

import vramscope.doctor as room
from vramscope.discovery import discover
from vramscope.doctor._frame import Check


def checks() -> dict[str, Check]:
    """Every check by the name of its file."""
    return discover(room, "CHECK", Check)

"""Whether a directory can be written to, and how much room its file system has."""

import os
import shutil
from pathlib import Path

from vramscope.doctor._frame import Finding, State
from vramscope.units import format_bytes

# The checkpoint of the demo takes 1 GB; a model of 7 billion parameters in 16 bits takes 15.
LITTLE_BYTES = 2 << 30


def room_of(directory: Path, variable: str, purpose: str) -> Finding:
    """The state of a cache directory, which need not be there yet. `purpose` is what is written to it."""
    place = _nearest(directory)
    advice = f"set {variable} to a directory with room that this user may write to"
    if place is None or not place.is_dir():
        found = f"{directory} cannot be there: {place or directory} is no directory"
        return Finding(state=State.WARNING, found=found, advice=advice)
    free = shutil.disk_usage(place).free
    if not os.access(place, os.W_OK | os.X_OK):
        found = f"{directory} cannot be written to: {purpose} will fail, reading what is there works"
        return Finding(state=State.WARNING, found=found, advice=advice)
    found = f"{format_bytes(free)} free in {directory}"
    if free < LITTLE_BYTES:
        return Finding(state=State.WARNING, found=f"{found}: {purpose} may not fit", advice=f"make room, or {advice}")
    return Finding(state=State.OK, found=found)


def _nearest(directory: Path) -> Path | None:
    """The directory, or the nearest above it that is there."""
    return next((place for place in (directory, *directory.absolute().parents) if place.exists()), None)

"""The residue in plain sentences: that a model gave everything back, or what is left and why, cause by cause."""

from dataclasses import dataclass
from typing import Any

from vramscope.memory.residue import (
    AFTER_RELEASE,
    ALLOCATOR_CACHE,
    CONTEXT_GROWTH,
    FOREIGN,
    HOST,
    LIVE_TENSORS,
    OTHER_PROCESSES,
    OUTSIDE_ALLOCATOR,
    PROCESS,
    PlaceResidue,
    Residue,
)
from vramscope.units import format_count, format_exactly

ALL_BACK = "gave everything back"
_WHY = {
    ALLOCATOR_CACHE: "free blocks that PyTorch keeps as a cache; the step release gives them back",
    CONTEXT_GROWTH: "what CUDA needs beside PyTorch's tensors grew: kernels and libraries are loaded when first used, "
    "and go with the worker (restart_worker)",
    PROCESS: "what Python, its modules and the C library's own cache hold in RAM; it goes with the worker "
    "(restart_worker)",
    OTHER_PROCESSES: "taken by other processes meanwhile, so not a residue of this model",
    OUTSIDE_ALLOCATOR: "taken meanwhile outside of PyTorch's allocator, by the CUDA context or by other processes, "
    "which the driver does not tell apart here, so not counted as this model's residue",
}
_CACHE_AFTER_RELEASE = "free blocks that PyTorch still keeps, because they share segments with tensors that are there"
_UNKNOWN_CAUSE = "left for a reason that has no name here"


@dataclass(frozen=True, kw_only=True)
class Cause:
    """One cause of a residue. `is_own` is False for what others took meanwhile, which is no part of the residue."""

    cause: str
    nbytes: int
    is_own: bool
    text: str


@dataclass(frozen=True, kw_only=True)
class Leftover:
    """What is left at one place (a device's name, or "host"), in bytes; without causes nothing is."""

    where: str
    nbytes: int
    text: str
    causes: tuple[Cause, ...]

    def as_json(self) -> dict[str, Any]:
        causes = [
            {"cause": each.cause, "bytes": each.nbytes, "own": each.is_own, "text": each.text} for each in self.causes
        ]
        return {"where": self.where, "bytes": self.nbytes, "text": self.text, "causes": causes}


def leftovers(residue: Residue) -> tuple[Leftover, ...]:
    """Every place of a residue in words, devices first."""
    places = sorted(residue.places, key=lambda place: place.where == HOST)
    return tuple(_leftover(place, residue.after) for place in places)


def _leftover(place: PlaceResidue, after: str) -> Leftover:
    causes = tuple(
        Cause(
            cause=cause,
            nbytes=nbytes,
            is_own=cause not in FOREIGN,
            text=f"{format_exactly(nbytes)}: {_why(cause, place, after)}.",
        )
        for cause, nbytes in place.causes.items()
        if nbytes > 0
    )
    text = f"{format_exactly(place.nbytes)} left" if place.nbytes else ALL_BACK
    return Leftover(where=place.where, nbytes=place.nbytes, text=text, causes=causes)


def _why(cause: str, place: PlaceResidue, after: str) -> str:
    if cause == LIVE_TENSORS:
        return _live(place)
    if cause == ALLOCATOR_CACHE and after == AFTER_RELEASE:
        return _CACHE_AFTER_RELEASE
    return _WHY.get(cause, _UNKNOWN_CAUSE)


def _live(place: PlaceResidue) -> str:
    count = sum(each.count for each in place.live)
    sizes = ", ".join(f"{format_count(each.count)} x {each.label}" for each in place.live)
    what = f"{format_count(count)} tensor{'' if count == 1 else 's'} ({sizes})" if count else "tensors"
    return f"{what} that no loaded model owns and that something still refers to"

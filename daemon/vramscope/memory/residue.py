"""What an unload did not give back: the level after it against the level before the load, by cause. Sizes are bytes.

The tensors of models that are still loaded are no residue of another one, so they are left out of both levels.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import linear_regression

from vramscope.events import Event

HOST = "host"

LIVE_TENSORS = "live_tensors"
ALLOCATOR_CACHE = "allocator_cache"
CONTEXT_GROWTH = "context_growth"
PROCESS = "process"
OTHER_PROCESSES = "other_processes"
OUTSIDE_ALLOCATOR = "outside_allocator"
# What happened on the device meanwhile, and cannot be put down to the model.
FOREIGN = frozenset({OTHER_PROCESSES, OUTSIDE_ALLOCATOR})

AFTER_UNLOAD, AFTER_RELEASE, AFTER_RESET = "unload", "release", "reset"

MIB = 1 << 20
# From below which size on, in bytes: what the allocator serves from shared 2 MiB segments, from 20 MiB segments, ...
SIZE_CLASSES = {"under 1 MiB": MIB, "1 to 10 MiB": 10 * MIB, "10 to 100 MiB": 100 * MIB}
LARGEST_CLASS = "100 MiB and more"

HISTORY_KEPT = 20
# Fewer unloads tell nothing about a trend: caches and lazily loaded libraries fill up in the first ones.
TREND_NEEDS = 5


@dataclass(frozen=True, kw_only=True)
class Level:
    """What is held at one place at one moment, but for the tensors of loaded models; None is unknown.

    `live` maps the address of each tensor storage that no model owns to its bytes; where an allocator does not tell
    them apart it is None, and `untold_bytes` is what they take. On the host `process_bytes` is what the process holds
    anonymously, in RAM and swap; on a device it is what it uses outside of the allocator.
    """

    where: str
    live: Mapping[int, int] | None = field(default_factory=dict)
    untold_bytes: int = 0
    cache_bytes: int = 0
    process_bytes: int | None = None
    others_bytes: int | None = None
    outside_bytes: int | None = None

    @property
    def nbytes(self) -> int:
        """What tensors and the process itself hold; on the host the first are a part of the second.

        The cache is left out: it comes and goes with each `release`, and grows only as far as models need it.
        """
        return (0 if self.where == HOST else self.tensor_bytes) + (self.process_bytes or 0)

    @property
    def tensor_bytes(self) -> int:
        """What tensors that no model owns take."""
        return self.untold_bytes if self.live is None else sum(self.live.values())


@dataclass(frozen=True, kw_only=True)
class SizeClass:
    """How many live tensors of about one size there are, and their bytes."""

    label: str
    count: int
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class PlaceResidue:
    """What is held at one place (a device's name, or "host") beyond the level before the load, by cause.

    `level_bytes` is what is held there now but for loaded models and the allocator's cache: over many cycles it tells a
    leak, which each single load finds there already.
    """

    where: str
    causes: dict[str, int]
    level_bytes: int
    live: tuple[SizeClass, ...] = ()

    @property
    def nbytes(self) -> int:
        """The bytes that this process did not give back; what others took meanwhile is not among them."""
        return sum(nbytes for cause, nbytes in self.causes.items() if cause not in FOREIGN)

    @property
    def main_cause(self) -> str:
        """The cause of most of it; empty where nothing is left."""
        own = {cause: nbytes for cause, nbytes in self.causes.items() if cause not in FOREIGN}
        return max(own, key=lambda cause: own[cause]) if self.nbytes else ""


@dataclass(frozen=True, kw_only=True)
class Residue:
    """What a model left behind, place by place. `after` says what it was measured after: an AFTER_ constant."""

    model: str
    after: str
    places: tuple[PlaceResidue, ...]

    @property
    def device_bytes(self) -> int:
        return sum(place.nbytes for place in self.places if place.where != HOST)


@dataclass(frozen=True, kw_only=True)
class ResidueMeasured(Event):
    """What models left behind, measured when they were gone."""

    residues: tuple[Residue, ...]


def compare(before: Level, after: Level) -> PlaceResidue:
    """The residue at one place. A cause that shrank left nothing; one that cannot be known is not named."""
    left = None
    if before.live is not None and after.live is not None:
        left = [nbytes for _, nbytes in after.live.items() - before.live.items()]
    causes = {LIVE_TENSORS: max(0, after.tensor_bytes - before.tensor_bytes) if left is None else sum(left)}
    process = _growth(before.process_bytes, after.process_bytes)
    if after.where == HOST:
        if process is not None:  # live tensors are a part of what the process holds
            causes[PROCESS] = max(0, process - causes[LIVE_TENSORS])
    else:
        causes[ALLOCATOR_CACHE] = max(0, after.cache_bytes - before.cache_bytes)
        foreign = {
            CONTEXT_GROWTH: process,
            OTHER_PROCESSES: _growth(before.others_bytes, after.others_bytes),
            OUTSIDE_ALLOCATOR: _growth(before.outside_bytes, after.outside_bytes),
        }
        causes |= {cause: nbytes for cause, nbytes in foreign.items() if nbytes is not None}
    return PlaceResidue(where=after.where, causes=causes, level_bytes=after.nbytes, live=_by_size(left or ()))


def _growth(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, after - before)


def _by_size(sizes: Sequence[int]) -> tuple[SizeClass, ...]:
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    for nbytes in sizes:
        label = next((label for label, limit in SIZE_CLASSES.items() if nbytes < limit), LARGEST_CLASS)
        counts[label] += 1
        totals[label] += nbytes
    return tuple(
        SizeClass(label=label, count=counts[label], nbytes=totals[label])
        for label in (*SIZE_CLASSES, LARGEST_CLASS)
        if counts[label]
    )


def trend(history: Sequence[int]) -> float | None:
    """Bytes by which levels grow from one unload to the next, by least squares; None where too few are known."""
    if len(history) < TREND_NEEDS:
        return None
    if all(left == right for left, right in pairwise(history)):
        return 0.0
    return linear_regression(range(len(history)), history).slope

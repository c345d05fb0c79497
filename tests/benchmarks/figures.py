"""What the benchmarks have in common: spreads, text tables, the checkpoint that they load, the JSON that they write."""

import json
import math
import os
import platform
import statistics
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramscope.anatomy.synthetic import materialize
from vramscope.settings import default_cache

CHECKPOINT = "qwen2.5-0.5b"


@dataclass(frozen=True)
class Spread:
    """Median and range of several measurements of one thing."""

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        return cls(tuple(values))

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    def over(self, other: "Spread") -> "Spread":
        """The ratios to what was measured in the same rounds."""
        return Spread.of(mine / its for mine, its in zip(self.values, other.values, strict=True))

    def text(self, scale: float = 1, digits: int = 0) -> str:
        low, middle, high = (scale * value for value in (min(self.values), self.median, max(self.values)))
        return f"{middle:.{digits}f} ({low:.{digits}f}-{high:.{digits}f})"


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` of the values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def say(line: str = "") -> None:
    """Print one line at once, also into a pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def say_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print columns: the first one to the left, the others to the right."""
    lines = [tuple(head), *map(tuple, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        first, *others = (text.rjust(width) for text, width in zip(line, widths, strict=True))
        say("  ".join([first.strip().ljust(widths[0]), *others]))


def checkpoint_directory(name: str = CHECKPOINT) -> Path:
    """A synthetic checkpoint in the cache ($VRAMSCOPE_CACHE, or vramscope's own); made if it is not there."""

    def tell(done: int, total: int) -> None:
        if done == total:
            say(f"made {name}, {total:,} bytes")

    return materialize(name, default_cache(os.environ), progress=tell, check=lambda: None)


def write_json(path: Path, figures: dict[str, Any]) -> None:
    """Write the figures, with what they were measured on."""
    machine = {"python": platform.python_version(), "system": platform.platform(), "processors": os.cpu_count()}
    path.write_text(json.dumps({"machine": machine, **figures}, indent=2) + "\n")
    say(f"written to {path}")

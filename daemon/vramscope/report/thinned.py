"""Long series in little memory: a run of a year is told by as many points as a chart can show."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from statistics import median, quantiles
from typing import Generic, TypeVar

T = TypeVar("T")


class Thinned(Generic[T]):
    """Keeps at most `limit` items. When they are too many, of each two neighbours the one stays that `choose` says."""

    def __init__(self, limit: int, choose: Callable[[T, T], T]) -> None:
        self._limit = limit
        self._choose = choose
        self._items: list[T] = []
        self._in_each = 1
        self._in_last = 0

    def add(self, item: T) -> None:
        if self._items and self._in_last < self._in_each:
            self._items[-1] = self._choose(self._items[-1], item)
            self._in_last += 1
            return
        self._items.append(item)
        self._in_last = 1
        if len(self._items) > self._limit:
            self._halve()

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def _halve(self) -> None:
        pairs = zip(self._items[::2], self._items[1::2], strict=False)
        odd = len(self._items) % 2
        last = self._items[-1]
        self._items = [self._choose(first, second) for first, second in pairs]
        self._in_last += 0 if odd else self._in_each
        self._in_each *= 2
        if odd:
            self._items.append(last)


@dataclass
class Spread:
    """How a duration or a size varies. The median is that of at most 500 values, evenly chosen from all."""

    count: int = 0
    least: float = 0.0
    most: float = 0.0
    _values: Thinned[float] = field(default_factory=lambda: Thinned[float](500, lambda _first, second: second))

    def add(self, value: float) -> None:
        self.least = value if not self.count else min(self.least, value)
        self.most = value if not self.count else max(self.most, value)
        self.count += 1
        self._values.add(value)

    @property
    def middle(self) -> tuple[float, float] | None:
        """Between what and what the middle half of all values lies; None for fewer than three, which tell nothing."""
        if self.count < 3:  # noqa: PLR2004 - as above
            return None
        first, _, third = quantiles(self._values, n=4, method="inclusive")
        return first, third

    @property
    def median(self) -> float | None:
        return median(self._values) if self.count else None

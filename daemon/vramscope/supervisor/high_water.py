"""The highest of the values that were seen within the last minute, in constant memory."""

from collections import deque

WINDOW_SECONDS = 60


class HighWater:
    """Keeps the highest value of each second of the window."""

    def __init__(self, window_seconds: int = WINDOW_SECONDS) -> None:
        self._window_seconds = window_seconds
        self._seconds: deque[tuple[int, int]] = deque()

    def note(self, at: float, value: int) -> None:
        """`at` is seconds of a clock that never goes back."""
        second = int(at)
        if self._seconds and self._seconds[-1][0] == second:
            value = max(value, self._seconds.pop()[1])
        self._seconds.append((second, value))
        self._expire(second)

    def highest(self, at: float) -> int | None:
        """The highest value of the window that ends at `at`; None where nothing was seen in it."""
        self._expire(int(at))
        return max((value for _, value in self._seconds), default=None)

    def _expire(self, second: int) -> None:
        while self._seconds and self._seconds[0][0] <= second - self._window_seconds:
            self._seconds.popleft()

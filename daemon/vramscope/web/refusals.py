"""Logs who was turned away and why: the first at once, then at most one line a minute for each reason."""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)

QUIET_SECONDS = 60.0
REASONS_KEPT = 100


@dataclass
class _Told:
    at: float
    since: int = 0


class Refusals:
    """Counts refusals between two lines, so that who knocks a thousand times cannot fill a disk."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._told: dict[tuple[str, ...], _Told] = {}

    def tell(self, event: str, reason: str, client: str = "") -> None:
        """Note one. Neither `reason` nor `client` may hold what the client sent in secret."""
        key, now = (event, reason, client), self._clock()
        told = self._told.get(key)
        if told is not None and now - told.at < QUIET_SECONDS:
            told.since += 1
            return
        fields: dict[str, object] = {"reason": reason}
        if client:
            fields["client"] = client
        if told is not None and told.since:
            fields["more_since_last_line"] = told.since
        while len(self._told) >= REASONS_KEPT:
            del self._told[next(iter(self._told))]
        self._told[key] = _Told(now)
        logger.warning(event, extra=fields)

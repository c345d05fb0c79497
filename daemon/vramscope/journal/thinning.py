"""Which events the journal gets: all that happens, and of what is only looked at no more than somebody will look for.

Memory is sampled about once a second by several probes. Of each kind the first sample after anything else happened is
passed on, then one each INTERVAL_SECONDS, and the last one before the next thing happens. A sample may have been asked
for before that thing; then the next one is passed on as well.
"""

from collections.abc import Iterator

from vramscope.events import Event
from vramscope.journal.lines import RECORDED
from vramscope.memory.host import HostSampled
from vramscope.memory.snapshot import DriverSampled, MemorySampled, ResidentSampled

INTERVAL_SECONDS = 10.0
SAMPLES = (MemorySampled, DriverSampled, ResidentSampled, HostSampled)


class Thinner:
    """Passes events on, or holds the last sample of a kind until something happens."""

    def __init__(self, interval_seconds: float = INTERVAL_SECONDS) -> None:
        self._interval = interval_seconds
        self._passed_at: dict[type[Event], float] = {}
        self._held: dict[type[Event], Event] = {}
        self._happened_at = float("-inf")

    def pass_on(self, event: Event) -> Iterator[Event]:
        if isinstance(event, SAMPLES):
            yield from self._sampled(event)
        elif isinstance(event, RECORDED):
            yield from self.release()
            self._happened_at = event.at
            yield event

    def release(self) -> Iterator[Event]:
        """What is held, oldest first; after it, the next sample of each kind is passed on."""
        yield from self._held.values()
        self._held.clear()
        self._passed_at.clear()

    def _sampled(self, event: Event) -> Iterator[Event]:
        kind = type(event)
        self._held.pop(kind, None)
        last = self._passed_at.get(kind)
        if last is not None and 0 <= event.at - last < self._interval:  # the clock may be set back
            self._held[kind] = event
            return
        if event.at >= self._happened_at:
            self._passed_at[kind] = event.at
        yield from self._held.values()  # so that the order of what is passed on stays that of what happened
        self._held.clear()
        yield event

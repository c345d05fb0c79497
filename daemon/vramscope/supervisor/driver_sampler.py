"""Asks NVML about all devices of the machine, in one thread for the life of the daemon.

A driver that hangs costs that thread and nothing else: everybody reads what it wrote down last. Memory is asked for ten
times a second, for its highest use; once a second memory and processes together make a picture that others see. Where a
round takes longer than a fiftieth of a second, as with dozens of devices, rounds are so far apart that the thread works
a fifth of the time, but at most a second.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from vramscope.devices.cards import Card, without_partitioned
from vramscope.devices.driver import read_device
from vramscope.devices.nvml import Nvml, NvmlError
from vramscope.devices.own import ProcessNames
from vramscope.devices.told import Told
from vramscope.errors import reason_of
from vramscope.supervisor.high_water import HighWater

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 0.1
PICTURE_SECONDS = 1.0
LONGEST_INTERVAL_SECONDS = 1.0
REST_PER_WORK = 4
# MIG instances come and go while NVML runs.
LISTING_SECONDS = 10.0
RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 5.0
# Where there is no NVML, none is expected; where a single device is lost, the others are not to be disturbed often.
LONGEST_PAUSE_SECONDS = 60.0


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What is known of one device.

    `asked_at` (monotonic) is when it was asked last, `answered_at` (of the epoch) when it answered last. `told` is the
    last picture, asked for at `pictured_at` (of the epoch), and None where the last question failed, for `reason`.
    """

    card: Card
    asked_at: float
    answered_at: float | None = None
    pictured_at: float = 0.0
    told: Told | None = None
    reason: str = ""
    high_water_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Sampled:
    """What the thread wrote down last. `failure` is why NVML as a whole does not answer.

    `looked_at` is when it was read there (monotonic), `asking_since` when the question began that was not answered by
    then (monotonic), and `question` what it is about.
    """

    readings: tuple[Reading, ...] = ()
    cards: tuple[Card, ...] = ()
    failure: str = ""
    is_absent: bool = False
    driver_version: str = ""
    looked_at: float = 0.0
    asking_since: float | None = None
    question: str = ""


class DriverSampler:
    """The thread and what it knows. `pids` are our own processes now; it calls `on_picture` after each picture."""

    def __init__(
        self, pids: Callable[[], Collection[int]], names: ProcessNames, on_picture: Callable[[], None]
    ) -> None:
        self._pids = pids
        self._on_picture = on_picture
        self._names = names
        self._nvml = Nvml()
        self._lock = threading.Lock()
        self._readings: dict[str, Reading] = {}
        self._high_water: dict[str, HighWater] = {}
        self._sampled = Sampled()
        self._cards: tuple[Card, ...] = ()
        self._listed_at = self._pictured_at = float("-inf")
        self._renewal = _Backoff()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="nvml", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, seconds: float) -> None:
        """Let the thread end; one that hangs is left behind after `seconds`, and does not keep the process."""
        self._stopping.set()
        self._thread.join(seconds)

    def look(self) -> Sampled:
        """What is known now; never waits for the driver."""
        with self._lock:
            readings, now = tuple(self._readings.values()), time.monotonic()
            return replace(self._sampled, readings=readings, cards=self._cards, looked_at=now)

    def _run(self) -> None:
        pause = 0.0
        while not self._stopping.wait(pause):
            began = time.monotonic()
            try:
                failed = self._round()
            except Exception as surprise:  # the border of this probe: it must not blind us for good
                logger.exception("nvml_probe_failed")
                failed = NvmlError(f"NVML: {reason_of(surprise)}")
                self._fail(failed)
            self._asking("")
            worked = time.monotonic() - began
            pause = min(max(INTERVAL_SECONDS - worked, worked * REST_PER_WORK), LONGEST_INTERVAL_SECONDS)
            if failed is not None:
                longest = LONGEST_PAUSE_SECONDS if failed.is_absent else LONGEST_RETRY_SECONDS
                pause = self._renewal.next_seconds(longest)
        self._nvml.stop()

    def _round(self) -> NvmlError | None:
        """Ask about every device; the error if NVML as a whole does not answer."""
        try:
            self._list()
        except NvmlError as error:
            self._nvml.stop()
            self._fail(error)
            return error
        now = time.monotonic()
        with_picture = now - self._pictured_at >= PICTURE_SECONDS
        if with_picture:
            self._pictured_at = now
        answers = [self._ask(card, with_picture=with_picture) for card in self._devices()]
        failures = [failure for failure in answers if failure is not None]
        if any(failure.needs_renewal for failure in failures):
            self._renew()
        elif not failures:
            self._renewal.reset()
        if with_picture:
            self._on_picture()
        return None

    def _list(self) -> None:
        """Start NVML and find its devices, if that is due. Raises NvmlError."""
        now = time.monotonic()
        if now - self._listed_at < LISTING_SECONDS:
            return
        self._asking("nvmlInit")
        self._nvml.start()
        count, version = self._nvml.count(), self._nvml.driver_version()
        with self._lock:
            self._sampled = replace(self._sampled, failure="", is_absent=False, driver_version=version)
        if not self._cards:
            self._note_cards(tuple(Card(index=str(index)) for index in range(count)))  # known, if not yet by name
        self._note_cards(tuple(card for number in range(count) for card in self._find(number)))
        self._listed_at = now

    def _find(self, number: int) -> tuple[Card, ...]:
        self._asking(f"finding GPU {number}")
        return self._nvml.cards_of(number)

    def _note_cards(self, cards: tuple[Card, ...]) -> None:
        """Take over a list. A GPU that was on the one before is not forgotten: that it is gone is the news.

        One that has another place now, as those behind an unplugged one, is not gone.
        """
        identities = {card.index: card for card in self._cards}
        cards = tuple(_with_identity(card, identities.get(card.index)) for card in cards)
        found = {card.index for card in cards} | {card.uuid for card in cards if card.uuid}
        gone = [
            replace(card, problem="NVML no longer lists it; it was there when it was asked before")
            for card in self._cards
            if not card.is_instance and card.index not in found and card.uuid not in found
        ]
        now = time.monotonic()
        with self._lock:
            self._cards = (*cards, *gone)
            before = self._readings
            self._readings = {}
            for card in without_partitioned(self._cards):
                last = before.get(card.index)
                if last is None or (last.card.uuid and last.card.uuid != card.uuid):
                    last = Reading(card=card, asked_at=now)
                    self._high_water[card.index] = HighWater()
                self._readings[card.index] = replace(last, card=card)

    def _devices(self) -> list[Card]:
        return [reading.card for reading in self._readings.values()]

    def _ask(self, card: Card, *, with_picture: bool) -> NvmlError | None:
        """Ask about one device and write it down; the error if it does not answer."""
        self._asking(card.device)
        asked_at, last, highest = time.monotonic(), self._readings[card.index], self._high_water[card.index]
        try:
            if with_picture or last.told is None:
                pictured_at = time.time()
                told = read_device(self._nvml, card, self._pids(), self._names)
                used = told.memory.used_bytes
                last = replace(last, told=told, pictured_at=pictured_at, reason=told.reason)
            else:
                used = self._nvml.memory(card).memory.used_bytes
        except NvmlError as error:
            self._note(replace(last, asked_at=asked_at, told=None, reason=str(error), high_water_bytes=None))
            return error
        if used is not None:
            highest.note(asked_at, used)
        high_water = highest.highest(asked_at)
        self._note(replace(last, asked_at=asked_at, answered_at=time.time(), high_water_bytes=high_water))
        return None

    def _renew(self) -> None:
        """Start NVML anew when that is due: some failures last as long as a session of NVML."""
        if self._renewal.is_due(LONGEST_PAUSE_SECONDS):
            self._nvml.stop()
            self._listed_at = float("-inf")

    def _fail(self, error: NvmlError) -> None:
        self._listed_at = float("-inf")
        now = time.monotonic()
        with self._lock:
            self._sampled = replace(self._sampled, failure=str(error), is_absent=error.is_absent)
            self._readings = {
                index: replace(reading, asked_at=now, told=None, reason=str(error), high_water_bytes=None)
                for index, reading in self._readings.items()
            }

    def _note(self, reading: Reading) -> None:
        with self._lock:
            self._readings[reading.card.index] = reading

    def _asking(self, question: str) -> None:
        """Write down what is asked now, so that one who waits for the answer can be told."""
        since = time.monotonic() if question else None
        with self._lock:
            self._sampled = replace(self._sampled, asking_since=since, question=question)


def _with_identity(card: Card, before: Card | None) -> Card:
    """A device that NVML gives no handle for is the one that had its place before."""
    if before is None or not card.problem:
        return card
    return replace(before, is_partitioned=False, problem=card.problem, problem_code=card.problem_code)


class _Backoff:
    """Pauses that double from one failure to the next."""

    def __init__(self) -> None:
        self._seconds = RETRY_SECONDS
        self._due = float("-inf")

    def next_seconds(self, longest: float) -> float:
        seconds = min(self._seconds, longest)
        self._seconds = 2 * seconds
        return seconds

    def is_due(self, longest: float) -> bool:
        """Whether the last pause is over; then the next one begins."""
        now = time.monotonic()
        if now < self._due:
            return False
        self._due = now + self.next_seconds(longest)
        return True

    def reset(self) -> None:
        self._seconds = RETRY_SECONDS

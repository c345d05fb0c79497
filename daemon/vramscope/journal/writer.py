"""Writes a run's events to its journal, in a thread of its own: a slow or a full disk must not stop the run.

What cannot be written waits, up to WAITING_LIMIT events, and is tried again every RETRY_SECONDS. What does not fit any
more is dropped and counted, and the journal says at that place how much is missing.
"""

import logging
import platform
import queue
import threading
import time
from collections.abc import Callable

from vramscope import __version__
from vramscope.errors import reason_of
from vramscope.events import (
    CycleEnded,
    CycleStarted,
    Event,
    JournalSampled,
    PlanEnded,
    PlanStarted,
    StepEnded,
    StepStarted,
    WorkerExited,
)
from vramscope.journal.file import FULL, JournalFile
from vramscope.journal.lines import JournalClosed, JournalGap, JournalOpened, encode
from vramscope.journal.thinning import Thinner
from vramscope.memory.snapshot import WorkerReady

logger = logging.getLogger(__name__)

WAITING_LIMIT = 10_000
RETRY_SECONDS = 1.0
SYNC_SECONDS = 5.0
# A write that takes longer than this is a fault; a disk that is busy takes a second or two.
PATIENCE_SECONDS = 10.0
CLOSE_SECONDS = 3.0
STUCK = "the disk does not answer: a write takes too long"
# What a file must repeat of earlier ones to be read without them, and what ends it.
CARRIED: dict[type[Event], type[Event]] = {
    PlanStarted: PlanEnded,
    WorkerReady: WorkerExited,
    CycleStarted: CycleEnded,
    StepStarted: StepEnded,
}
_ENDS = {end: start for start, end in CARRIED.items()}


class JournalWriter:
    """A subscriber that writes what happens. `start` it once, `close` it at the end; `health` can be asked any time."""

    def __init__(
        self,
        file: JournalFile,
        *,
        waiting_limit: int = WAITING_LIMIT,
        retry_seconds: float = RETRY_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._file = file
        self._retry_seconds = retry_seconds
        self._patience_seconds = patience_seconds
        self._thinner = Thinner()
        self._waiting: queue.Queue[Event] = queue.Queue(waiting_limit)
        self._carried: dict[type[Event], Event] = {}
        self._is_headless, self._is_first = True, True
        self._written = self._unwritable = 0
        self._dropped = self._gap = 0
        self._gap_since = 0.0
        self._failure = ""
        self._busy_since: float | None = None
        self._synced_at = time.monotonic()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def on_event(self, event: Event) -> None:
        """Take an event; never waits. Called in one thread only."""
        for each in self._thinner.pass_on(event):
            self._put(each)

    def health(self) -> JournalSampled:
        """How the journal is now; never waits."""
        busy, reason = self._busy_since, self._failure
        if busy is not None and time.monotonic() - busy > self._patience_seconds:
            reason = STUCK
        dropped = self._dropped + self._unwritable
        return JournalSampled(at=time.time(), reason=reason, written=self._written, dropped=dropped)

    def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Write what waits and end; False where the disk does not take it in time."""
        for each in self._thinner.release():
            self._put(each)
        self._closing.set()
        self._thread.join(seconds)
        lost = self._dropped + self._unwritable + self._waiting.qsize()
        if lost:
            logger.warning("journal_incomplete", extra={"events_lost": lost, "reason": self.health().reason})
        return not self._thread.is_alive()

    def _put(self, event: Event) -> None:
        try:
            if self._gap:
                gap = JournalGap(at=event.at, since=self._gap_since, dropped=self._gap)
                self._waiting.put_nowait(gap)
                self._gap = 0
            self._waiting.put_nowait(event)
        except queue.Full:
            if not self._gap:
                self._gap_since = event.at
            self._gap += 1
            self._dropped += 1

    def _work(self) -> None:
        try:
            while not (self._closing.is_set() and self._waiting.empty()):
                try:
                    event = self._waiting.get(timeout=self._retry_seconds / 4)
                except queue.Empty:
                    pass
                else:
                    self._write(event)
                self._sync(SYNC_SECONDS)
            self._write(JournalClosed(at=time.time()))
            self._sync(0.0)
            self._file.close()
        except Exception:  # the border of this thread: the run goes on without it, and shows that it does
            logger.exception("journal_failed")
            self._failure = "a bug in vramscope ended the journal; the log has it"

    def _write(self, event: Event) -> None:
        """Write an event, however long that takes; only at the end of the run it is given up."""
        try:
            line = encode(event)
        except (ValueError, TypeError) as error:
            self._unwritable += 1
            logger.warning("event_not_journaled", extra={"event": type(event).__name__, "reason": reason_of(error)})
            return
        while not self._try(lambda: self._append(line)):
            if self._closing.is_set():
                self._unwritable += 1
                return
            self._closing.wait(self._retry_seconds)
        self._written += not isinstance(event, JournalGap | JournalClosed)
        self._carry(event)

    def _append(self, line: bytes) -> None:
        if self._file.open():
            self._is_headless = True
        head = self._head() if self._is_headless else b""
        if not self._file.has_room(len(head) + len(line)):
            self._file.rotate()
            self._file.open()
            self._is_headless = True
        self._file.append(self._head() + line if self._is_headless else line)
        self._is_headless = self._is_first = False

    def _head(self) -> bytes:
        """What a file begins with; all but the first time it only repeats."""
        versions = {"vramscope": __version__, "python": platform.python_version(), "kernel": platform.release()}
        again = not self._is_first
        lines = [encode(JournalOpened(at=time.time(), versions=versions), again=again)]
        return b"".join(lines + [encode(event, again=True) for event in self._carried.values()])

    def _carry(self, event: Event) -> None:
        if type(event) in CARRIED:
            self._carried[type(event)] = event
        elif (start := _ENDS.get(type(event))) is not None:
            self._carried.pop(start, None)

    def _sync(self, after_seconds: float) -> None:
        if time.monotonic() - self._synced_at >= after_seconds:
            self._try(self._file.sync)
            self._synced_at = time.monotonic()

    def _try(self, work: Callable[[], None]) -> bool:
        self._busy_since = time.monotonic()
        try:
            work()
        except OSError as error:
            self._failure = error.strerror or str(error)
            if error.errno not in FULL:
                self._file.close()  # the next try opens it anew
            return False
        finally:
            self._busy_since = None
        self._failure = ""
        return True

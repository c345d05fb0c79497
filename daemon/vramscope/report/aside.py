"""Writes to a terminal or a pipe in a thread of its own: whoever reads slowly must not stop the run."""

import contextlib
import queue
import threading
from collections.abc import Callable

from vramscope.events import Event

WAITING_LIMIT = 1000
CLOSE_SECONDS = 1.0


class Aside:
    """Calls things one after the other in a daemon thread. What does not fit in the queue is dropped.

    When nothing can be written any more (a closed pipe, a full disk), the rest is dropped too, and the run goes on.
    `is_broken` says that this has happened, `why` for what reason; `why` stays empty where a reader just went away.
    `lost` is called with the reason, in the thread, as soon as there is one.
    """

    def __init__(self, lost: Callable[[str], None] = lambda _why: None) -> None:
        self.is_broken = False
        self.why = ""
        self._lost = lost
        self._waiting: queue.Queue[Callable[[], None] | None] = queue.Queue(WAITING_LIMIT)
        self._thread = threading.Thread(target=self._work, name="terminal", daemon=True)
        self._thread.start()

    def subscriber(self, on_event: Callable[[Event], None]) -> Callable[[Event], None]:
        """A subscriber that hands each event to `on_event` in the thread."""
        return lambda event: self.do(lambda: on_event(event))

    def do(self, work: Callable[[], None]) -> None:
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(work)

    def close(self) -> bool:
        """Let what waits be written, for a moment; False if a write is stuck, and with it the process's normal end."""
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=CLOSE_SECONDS)
        self._thread.join(CLOSE_SECONDS)
        return not self._thread.is_alive()

    def _work(self) -> None:
        try:
            while (work := self._waiting.get()) is not None:
                work()
        except (BrokenPipeError, SystemExit):  # rich raises SystemExit where the reader of a pipe is gone
            self.is_broken = True
        except OSError as error:
            self.is_broken, self.why = True, error.strerror or str(error)
            self._lost(self.why)

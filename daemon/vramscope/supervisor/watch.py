"""Watches files for changes, and reads them in a thread of its own: a file system that hangs keeps nobody waiting.

Files are looked at, not listened to: only what a path leads to in the end counts, so an editor's rename and Kubernetes'
swap of the symbolic link `..data` are the same as a write.
"""

import asyncio
import contextlib
import logging
import queue
import stat
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Generic, TypeVar

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0

Read = TypeVar("Read")
Ticket = TypeVar("Ticket")
Look = tuple[int, ...] | None


class Watch(Generic[Read, Ticket]):
    """Calls `read` in its thread and `deliver` in the loop, for each change of `paths` and whenever it is asked to.

    The files are read once at the start, and a change once two looks in a row found the same, so that a file is not
    read while it is written. `deliver` also gets the tickets of those who asked before. Where `read` raises, that is
    logged and nothing is delivered.
    """

    def __init__(
        self,
        paths: Callable[[], Iterable[Path]],
        read: Callable[[], Read],
        deliver: Callable[[Read, list[Ticket]], None],
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self._paths = paths
        self._read = read
        self._deliver = deliver
        self._interval = interval_seconds
        self._wake = threading.Event()
        self._asked: queue.SimpleQueue[Ticket] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._last: tuple[Look, ...] | None = None
        self._known: tuple[Look, ...] | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Begin to watch, in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread.start()

    def ask(self, ticket: Ticket) -> None:
        """Have the files read now, changed or not; `deliver` gets the ticket with what was read."""
        self._asked.put(ticket)
        self._wake.set()

    def stop(self) -> None:
        """End the thread; one that hangs in a file system is left behind, and does not keep the process."""
        self._stopping.set()
        self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait(self._interval)
            self._wake.clear()
            if self._stopping.is_set():
                return
            asked = self._tickets()
            look = self._look()
            is_settled, self._last = look == self._last, look
            if asked or (is_settled and look != self._known):
                self._known = look
                try:
                    read = self._read()
                except Exception:  # the border of this watch: it must not end with one strange file
                    logger.exception("reading_failed")
                    continue
                try:
                    self._loop.call_soon_threadsafe(self._deliver, read, asked)
                except RuntimeError:
                    return  # the loop is closed: the process is ending

    def _tickets(self) -> list[Ticket]:
        found = []
        with contextlib.suppress(queue.Empty):
            while True:
                found.append(self._asked.get_nowait())
        return found

    def _look(self) -> tuple[Look, ...]:
        return tuple(_look(path) for path in self._paths())


def is_pipe(path: Path) -> bool:
    """Whether there is something that is neither file nor directory, such as a shell's `<(…)`.

    It gives what it has once, and to open it again may wait for ever. Looked at before each further reading.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _look(path: Path) -> Look:
    """What changes when a file does; None where there is none."""
    try:
        found = path.stat()
    except (OSError, ValueError):
        return None
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

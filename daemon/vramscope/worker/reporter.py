"""Turns what a step does into messages, and holds the flag that asks it to stop."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vramscope.errors import StepCancelledError
from vramscope.events import PhaseEnded, PhaseStarted, StepProgressed
from vramscope.memory.resident import Peak
from vramscope.memory.residue import ResidueMeasured
from vramscope.memory.snapshot import MemorySampled
from vramscope.worker.protocol import Message, RunStep

# Ten updates a second are smooth for a person and nothing for the pipe.
PROGRESS_INTERVAL_SECONDS = 0.1


@dataclass
class RunningPhase:
    """A phase while it runs."""

    nbytes: int | None = None


class Reporter:
    """The Monitor of one run of one step. `peak` is the RAM of this process meanwhile."""

    def __init__(self, command: RunStep, send: Callable[[Message], None]) -> None:
        self._command = command
        self._send = send
        self._cancelled = threading.Event()
        self._phase = ""
        self._last_progress = 0.0
        self.peak = Peak()

    def cancel(self) -> None:
        self._cancelled.set()

    def check_cancelled(self) -> None:
        if self._cancelled.is_set():
            raise StepCancelledError(f"step {self._command.step!r} was cancelled")

    def sleep(self, seconds: float) -> None:
        """Wait, or raise StepCancelledError at once when the step is cancelled."""
        self._cancelled.wait(seconds)
        self.check_cancelled()

    @contextmanager
    def phase(self, name: str) -> Iterator[RunningPhase]:
        self.check_cancelled()
        self._enter(name)
        running, began = RunningPhase(), time.perf_counter()
        yield running
        self.record_phase(name, time.perf_counter() - began, running.nbytes)

    def record_phase(self, name: str, seconds: float, nbytes: int | None) -> None:
        self.peak.look()
        self._send(
            PhaseEnded(
                at=time.time(),
                step=self._command.step,
                kind=self._command.kind,
                model=self._command.model,
                phase=name,
                seconds=seconds,
                nbytes=nbytes,
            )
        )

    def enter_phase(self, name: str) -> None:
        """Announce a phase whose time is recorded apart."""
        self._enter(name)

    def tell(self, event: MemorySampled | ResidueMeasured) -> None:
        """Send what was measured meanwhile."""
        self._send(event)

    def progress(self, bytes_done: int, bytes_total: int) -> None:
        now = time.monotonic()
        if now - self._last_progress < PROGRESS_INTERVAL_SECONDS and bytes_done < bytes_total:
            return
        self._last_progress = now
        self.peak.look()
        self._send(
            StepProgressed(
                at=time.time(),
                step=self._command.step,
                kind=self._command.kind,
                model=self._command.model,
                phase=self._phase,
                bytes_done=bytes_done,
                bytes_total=bytes_total,
            )
        )

    def _enter(self, name: str) -> None:
        self._phase = name
        self._last_progress = 0.0
        self._send(
            PhaseStarted(
                at=time.time(),
                step=self._command.step,
                kind=self._command.kind,
                model=self._command.model,
                phase=name,
            )
        )

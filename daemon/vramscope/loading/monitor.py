"""How loading tells what it does, and hears that it should stop."""

from contextlib import AbstractContextManager
from typing import Protocol


class Phase(Protocol):
    """The running phase; `nbytes` is set by whoever knows how many bytes it handled."""

    nbytes: int | None


class Monitor(Protocol):
    """What loading reports to. Phases do not nest: a step is in one phase at a time."""

    def phase(self, name: str) -> AbstractContextManager[Phase]:
        """Time a phase from entering to leaving; it is reported only when it ends without an error."""

    def enter_phase(self, name: str) -> None:
        """Say that a phase begins whose time will be recorded apart."""

    def record_phase(self, name: str, seconds: float, nbytes: int | None) -> None:
        """Report a phase whose time was measured apart, as reading and converting are inside one pass."""

    def progress(self, bytes_done: int, bytes_total: int) -> None:
        """Say how far the running phase is; calls may come as often as they like."""

    def check_cancelled(self) -> None:
        """Raise StepCancelledError if the step should stop."""

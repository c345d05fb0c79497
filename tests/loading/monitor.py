"""A monitor that keeps what loading reports, and asks it to stop when told to."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from vramscope.errors import StepCancelledError


@dataclass
class RecordedPhase:
    name: str
    nbytes: int | None = None
    seconds: float | None = None


class RecordingMonitor:
    """Keeps every phase that ended or was announced, and every progress report.

    `checks_left` checks pass before the step counts as cancelled; None is all of them.
    """

    def __init__(self, checks_left: int | None = None) -> None:
        self.phases: list[RecordedPhase] = []
        self.entered: list[str] = []
        self.reports: list[tuple[int, int]] = []
        self.checks_left = checks_left

    @contextmanager
    def phase(self, name: str) -> Iterator[RecordedPhase]:
        running = RecordedPhase(name)
        yield running
        self.phases.append(running)

    def enter_phase(self, name: str) -> None:
        self.entered.append(name)

    def record_phase(self, name: str, seconds: float, nbytes: int | None) -> None:
        self.phases.append(RecordedPhase(name, nbytes, seconds))

    def progress(self, bytes_done: int, bytes_total: int) -> None:
        self.reports.append((bytes_done, bytes_total))

    def check_cancelled(self) -> None:
        if self.checks_left is None:
            return
        if self.checks_left == 0:
            raise StepCancelledError("the test asked to stop")
        self.checks_left -= 1

    @property
    def phase_names(self) -> list[str]:
        return [phase.name for phase in self.phases]

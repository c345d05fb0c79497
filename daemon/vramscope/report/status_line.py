"""The line at the bottom of a terminal that says what goes on now; nothing where lines cannot be written over."""

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from vramscope.report.sizes import MIB, mib


class StatusLine:
    """A spinner with the time that has passed, or a bar where bytes are counted. Call `clear` before printing more."""

    def __init__(self, console: Console) -> None:
        self.is_live = console.is_terminal and not console.is_dumb_terminal
        self._console = console
        self._shown: tuple[str, bool] | None = None
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    def show(self, label: str, bytes_done: int = 0, bytes_total: int | None = None) -> None:
        """Say what goes on. Another label, or bytes where none were counted, begins anew: its time and its rate."""
        if not self.is_live:
            return
        if self._progress is None or self._task is None or self._shown != (label, bytes_total is not None):
            self.clear()
            self._shown = (label, bytes_total is not None)
            self._progress = _counting(self._console) if bytes_total is not None else _waiting(self._console)
            self._task = self._progress.add_task(label, total=bytes_total)
            self._progress.start()
        self._progress.update(self._task, total=bytes_total, completed=bytes_done)

    def clear(self) -> None:
        """Take the line away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = self._task = self._shown = None


def _waiting(console: Console) -> Progress:
    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        console=console,
        transient=True,
    )


def _counting(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        _Bytes(),
        _Rate(),
        TextColumn("elapsed"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(compact=True),
        console=console,
        transient=True,
        expand=True,
    )


class _Bytes(ProgressColumn):
    """Bytes done of bytes in all."""

    def render(self, task: Task) -> Text:
        return Text(f"{task.completed / MIB:,.1f} of {mib(task.total)}")


class _Rate(ProgressColumn):
    """Bytes per second of the last moments, in the unit of every other rate."""

    def render(self, task: Task) -> Text:
        return Text("" if task.speed is None else f"{mib(task.speed)}/s")

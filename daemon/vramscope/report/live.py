"""Tells on the terminal what a run is doing: progress bars where they can move, plain lines anywhere else."""

from functools import singledispatchmethod

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from vramscope.events import (
    CycleEnded,
    CycleStarted,
    Event,
    Outcome,
    PhaseEnded,
    PlanEnded,
    PlanStarted,
    StepEnded,
    StepEvent,
    StepProgressed,
    StepStarted,
    WorkerExited,
)
from vramscope.memory.snapshot import WorkerReady
from vramscope.report.sizes import mib, rate, seconds
from vramscope.units import format_bytes


class Narrator:
    """A subscriber that narrates. `urls` is where the page and the metrics are; call `close` at the end."""

    def __init__(self, console: Console, urls: tuple[str, ...] = ()) -> None:
        self._console = console
        self._urls = urls
        self._progress: Progress | None = None
        self._task: TaskID | None = None
        self._cycles: int | None = None
        self._phases: list[str] = []
        self._bytes = 0

    def on_event(self, event: Event) -> None:
        self._tell(event)

    def close(self) -> None:
        """Take a bar that still stands away, so that the terminal is left in order."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = self._task = None

    def _say(self, line: str, style: str = "") -> None:
        # Plan names are foreign text: no markup, no colours of its own.
        self._console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)

    @singledispatchmethod
    def _tell(self, _event: Event) -> None:
        """Pass over what is no news for a person."""

    @_tell.register
    def _(self, event: PlanStarted) -> None:
        self._cycles = event.cycles
        cycles = "forever" if event.cycles is None else f"{event.cycles} cycle{'s' if event.cycles != 1 else ''}"
        self._say(f"plan {event.plan} ({event.path}), {cycles}", "bold")
        for url in self._urls:
            self._say(f"look at {url} (metrics: {url}metrics)")

    @_tell.register
    def _(self, event: WorkerReady) -> None:
        kind = "simulated device" if event.backend == "simulated" else "device"
        for device in event.devices:
            total = f", {format_bytes(device.total_bytes)}" if device.total_bytes is not None else ""
            self._say(f"{kind} {device.device}: {device.name}{total} ({event.reason})")

    @_tell.register
    def _(self, event: CycleStarted) -> None:
        of = f" of {self._cycles}" if self._cycles is not None else ""
        self._say(f"cycle {event.cycle}{of}", "bold")

    @_tell.register
    def _(self, event: StepStarted) -> None:
        self._phases, self._bytes = [], 0
        self._say(f"  {_name(event)} ...", "dim")

    @_tell.register
    def _(self, event: StepProgressed) -> None:
        if not self._console.is_terminal:
            return
        if self._progress is None:
            self._progress = _bar(self._console)
            self._progress.start()
        label = f"    {event.phase}"
        if self._task is None:
            self._task = self._progress.add_task(label, total=event.bytes_total)
        self._progress.update(self._task, description=label, total=event.bytes_total, completed=event.bytes_done)

    @_tell.register
    def _(self, event: PhaseEnded) -> None:
        self.close()  # the next phase counts its own bytes, and its rate begins anew
        handled = f", {mib(event.nbytes)} at {rate(event.nbytes, event.seconds)}" if event.nbytes else ""
        self._bytes = max(self._bytes, event.nbytes or 0)
        self._phases.append(f"    {event.phase}: {seconds(event.seconds)}{handled}")

    @_tell.register
    def _(self, event: StepEnded) -> None:
        self.close()
        succeeded = event.outcome is Outcome.SUCCEEDED
        handled = f", {mib(self._bytes)} at {rate(self._bytes, event.seconds)}" if self._bytes else ""
        tokens = event.facts.get("tokens")
        counted = f", {tokens} tokens" if isinstance(tokens, int) else ""
        verdict = "done" if succeeded else event.outcome.value.replace("_", " ")
        error = f": {event.error}" if event.error else ""
        self._say(
            f"  {_name(event)} {verdict} in {seconds(event.seconds)}{handled}{counted}{error}",
            "" if succeeded else "red",
        )
        for line in self._phases:
            self._say(line, "dim")

    @_tell.register
    def _(self, event: CycleEnded) -> None:
        self._say(f"cycle {event.cycle} {event.outcome.value.replace('_', ' ')} in {seconds(event.seconds)}")

    @_tell.register
    def _(self, event: WorkerExited) -> None:
        self.close()
        if not event.expected:
            self._say(f"worker: {event.detail}", "red")

    @_tell.register
    def _(self, event: PlanEnded) -> None:
        self._say(f"plan {event.outcome.value.replace('_', ' ')}", "bold")


def _name(event: StepEvent) -> str:
    """The step's name, and what it does where the name does not say it."""
    doing = f"{event.kind} {event.model}".strip()
    return event.step if event.step == doing else f"{event.step} ({doing})"


def _bar(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=console,
        transient=True,
        expand=True,
    )

"""Tells on the terminal what a run is doing: progress bars where they can move, plain lines anywhere else."""

from collections.abc import Mapping
from functools import singledispatchmethod

from rich.console import Console

from vramscope.events import (
    CycleEnded,
    CycleStarted,
    Event,
    Fact,
    Outcome,
    PhaseEnded,
    PhaseStarted,
    PlanEnded,
    PlanReloaded,
    PlanReloadFailed,
    PlanStarted,
    StepEnded,
    StepEvent,
    StepProgressed,
    StepStarted,
    WebConfigRead,
    WorkerExited,
    WorkerStarted,
)
from vramscope.memory.snapshot import WorkerReady
from vramscope.report.sizes import mib, rate, seconds
from vramscope.report.status_line import StatusLine
from vramscope.settings import DeviceMode
from vramscope.units import format_bytes

SIMULATED = "simulated"
COPY = "copy"
# A load is cold with less than this share of its files in the page cache, and warm with all but this share.
COLD_SHARE = 0.05
STARTING = "starting the worker (imports torch)"


class Narrator:
    """A subscriber that narrates. `urls` is where the page and the metrics are; call `close` at the end.

    What the plan is and where to look is held back until there is a worker: a run that cannot start says only why.
    """

    def __init__(self, console: Console, urls: tuple[str, ...] = (), mode: DeviceMode = DeviceMode.SIMULATED) -> None:
        self._console = console
        self._urls = urls
        self._mode = mode
        self._status = StatusLine(console)
        self.outcome: Outcome | None = None  # of the plan, once it has ended
        self._held: list[tuple[str, str]] | None = None
        self._was_told = False
        self._cycles: int | None = None
        self._backend = ""
        self._phases: list[PhaseEnded] = []

    def on_event(self, event: Event) -> None:
        self._tell(event)

    def close(self) -> None:
        """Take a bar that still stands away, so that the terminal is left in order."""
        self._status.clear()

    def say(self, line: str, style: str = "") -> None:
        """Print a line as it is: plan names are foreign text, so there is no markup and there are no colours in it."""
        self._status.clear()
        self._console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)

    def _say_held(self) -> None:
        held, self._held = self._held, None
        for line, style in held or ():
            self.say(line, style)

    @singledispatchmethod
    def _tell(self, _event: Event) -> None:
        """Pass over what is no news for a person."""

    @_tell.register
    def _(self, event: PlanStarted) -> None:
        self._cycles = event.cycles
        cycles = "forever" if event.cycles is None else f"{event.cycles} cycle{'s' if event.cycles != 1 else ''}"
        self._held = [(f"plan {event.plan} ({event.path}), {cycles}", "bold")]
        self._held += [(f"look at {url} (metrics: {url}metrics)", "") for url in self._urls]

        if self._was_told:  # another plan ran before this one, so there is a worker
            self._say_held()
        self._urls, self._was_told = (), True

    @_tell.register
    def _(self, event: PlanReloaded) -> None:
        self.say("plan reloaded" if event.is_new else "plan reloaded: no change", "bold")

    @_tell.register
    def _(self, event: PlanReloadFailed) -> None:
        self.say(f"plan not reloaded, the one that runs stays:\n{event.problem}", "red")

    @_tell.register
    def _(self, event: WebConfigRead) -> None:
        if event.problem:
            self.say(f"web configuration not read, the one in force stays:\n{event.problem}", "red")

    @_tell.register
    def _(self, _event: WorkerStarted) -> None:
        if not self._status.is_live:
            self.say(f"{STARTING} ...", "dim")
        self._status.show(STARTING)

    @_tell.register
    def _(self, event: WorkerReady) -> None:
        self._say_held()
        is_first, self._backend = not self._backend, event.backend
        if is_first and self._mode is DeviceMode.AUTO and event.backend == SIMULATED:
            self.say(f"WARNING: no GPU is used, because {event.reason}; all that follows is simulated", "bold yellow")
        for device in event.devices:
            if event.backend == SIMULATED:  # its name says its size
                self.say(f"simulated device {device.device}: {device.name} ({event.reason})")
            else:
                total = f", {format_bytes(device.total_bytes)}" if device.total_bytes is not None else ""
                self.say(f"device {device.device}: {device.name}{total} ({event.reason})")

    @_tell.register
    def _(self, event: CycleStarted) -> None:
        of = f" of {self._cycles}" if self._cycles is not None else ""
        line = (f"cycle {event.cycle}{of}", "bold")
        if self._held is not None:
            self._held.append(line)
        else:
            self.say(*line)

    @_tell.register
    def _(self, event: StepStarted) -> None:
        self._say_held()
        self._phases = []
        if not self._status.is_live:
            self.say(f"  {_name(event)} ...", "dim")
        self._status.show(f"  {_name(event)}")

    @_tell.register
    def _(self, event: PhaseStarted) -> None:
        self._status.show(f"  {_name(event)}: {event.phase}")

    @_tell.register
    def _(self, event: StepProgressed) -> None:
        self._status.show(f"    {event.phase}", event.bytes_done, event.bytes_total)

    @_tell.register
    def _(self, event: PhaseEnded) -> None:
        self._phases.append(event)
        self._status.show(f"  {_name(event)}")

    @_tell.register
    def _(self, event: StepEnded) -> None:
        succeeded = event.outcome is Outcome.SUCCEEDED
        verdict = "done" if succeeded else event.outcome.value.replace("_", " ")
        handled = _handled(self._phases) if succeeded else ""
        error = f": {event.error}" if event.error else ""
        self.say(
            f"  {_name(event)} {verdict} in {seconds(event.seconds)}{handled}{_found(event.facts)}{error}",
            "" if succeeded else "red",
        )
        for phase in self._phases:
            self.say(self._phase_line(phase), "dim")

    def _phase_line(self, phase: PhaseEnded) -> str:
        line = f"    {phase.phase}: {seconds(phase.seconds)}"
        if phase.nbytes:
            line += f", {mib(phase.nbytes)} at {rate(phase.nbytes, phase.seconds)}"
            if phase.phase == COPY and self._backend == SIMULATED:
                line += " (set by --bandwidth, not measured)"
        return line

    @_tell.register
    def _(self, event: CycleEnded) -> None:
        if self._held is not None and event.outcome is Outcome.CANCELLED:
            self._held = None  # the run was over before there was a worker
            self._status.clear()
            return
        self._say_held()
        self.say(f"cycle {event.cycle} {event.outcome.value.replace('_', ' ')} in {seconds(event.seconds)}")

    @_tell.register
    def _(self, event: WorkerExited) -> None:
        self._status.clear()
        if not event.expected:
            self._say_held()
            self.say(f"worker: {event.detail}", "red")

    @_tell.register
    def _(self, event: PlanEnded) -> None:
        self.outcome = event.outcome
        self.say(f"plan {event.outcome.value.replace('_', ' ')}", "bold")


def _handled(phases: list[PhaseEnded]) -> str:
    """The bytes of a step and their rate, over those of its phases that handle bytes; importing code moves none."""
    counting = [phase for phase in phases if phase.nbytes]
    if not counting:
        return ""
    nbytes = max(phase.nbytes or 0 for phase in counting)
    names = ", ".join(dict.fromkeys(phase.phase for phase in counting))
    return f", {mib(nbytes)} at {rate(nbytes, sum(phase.seconds for phase in counting))} ({names})"


def _name(event: StepEvent) -> str:
    """The step's name, and what it does where the name does not begin with it."""
    if event.step.split(" ", 1)[0] == event.kind:
        return event.step
    return f"{event.step} ({f'{event.kind} {event.model}'.strip()})"


def _found(facts: Mapping[str, Fact]) -> str:
    """What a step found out, as a clause: tokens, how warm the files of a load were, where a model in parts is."""
    tokens, cached, lives = facts.get("tokens"), facts.get("page_cache_share"), facts.get("lives")
    clause = f", {tokens} tokens" if isinstance(tokens, int) else ""
    if isinstance(cached, float):
        warmth = "cold" if cached < COLD_SHARE else "warm" if cached > 1 - COLD_SHARE else "partly warm"
        clause += f", {warmth}: {100 * cached:.0f} % of its files cached"
    if isinstance(lives, str):
        clause += f", {lives}"
    return clause

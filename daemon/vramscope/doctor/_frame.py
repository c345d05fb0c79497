"""The frame of a check: what it may look at, what it says, and how all of them run, bounded and each by itself."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from vramscope.errors import reason_of
from vramscope.settings import DeviceMode

logger = logging.getLogger(__name__)

# What a healthy machine answers in some milliseconds; a check that starts a program gives itself more.
SECONDS = 5.0


class State(StrEnum):
    """What a finding means for a run; only a problem would stop one."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, kw_only=True)
class Finding:
    """What a check found, and what to do about it where there is something to do."""

    state: State
    found: str
    advice: str = ""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What checks look at. Below `root` are proc, sys and dev; `clock` tells seconds since the epoch.

    `device_mode` is that of the run that is wanted: what only a GPU needs stops no simulated run.
    """

    environment: Mapping[str, str]
    cache: Path
    hub_cache: Path
    device_mode: DeviceMode = DeviceMode.AUTO
    root: Path = Path("/")
    online: bool = False
    clock: Callable[[], float] = time.time

    @property
    def proc(self) -> Path:
        return self.root / "proc"

    @property
    def sys(self) -> Path:
        return self.root / "sys"

    @property
    def dev(self) -> Path:
        return self.root / "dev"

    def read(self, path: str) -> str | None:
        """The text of a file below the root; None where it is not there or cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def without_gpu(self, found: str, advice: str) -> Finding:
        """Why a run may have no GPU. Whether it has one, torch decides, which the check of CUDA's start asks."""
        state = State.NOTE if self.device_mode is DeviceMode.SIMULATED else State.WARNING
        return Finding(state=state, found=found, advice=advice)


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check: its title for people, what it does, and how long it may take, in seconds."""

    title: str
    look: Callable[[Machine], Finding]
    seconds: float = SECONDS


@dataclass(frozen=True, kw_only=True)
class Result:
    """What became of one check."""

    check: str
    title: str
    finding: Finding
    seconds: float


@dataclass(frozen=True, kw_only=True)
class _Running:
    """A check on its way: its thread cannot be stopped, only left behind."""

    name: str
    check: Check
    machine: Machine
    began: float = field(default_factory=time.monotonic)
    finding: "Future[Finding]" = field(default_factory=Future)

    def start(self) -> None:
        threading.Thread(target=self._look, name=f"doctor-{self.name}", daemon=True).start()

    def result(self) -> Result:
        left = self.began + self.check.seconds - time.monotonic()
        try:
            finding = self.finding.result(max(0.0, left))
        except FutureTimeout:
            found = f"no answer within {self.check.seconds:g} s"
            finding = Finding(state=State.WARNING, found=found, advice="a run that asks the same may wait as long")
        return Result(check=self.name, title=self.check.title, finding=finding, seconds=time.monotonic() - self.began)

    def _look(self) -> None:
        try:
            finding = self.check.look(self.machine)
        except Exception as error:
            logger.debug("check_failed", extra={"check": self.name}, exc_info=True)
            found = f"the check itself failed: {type(error).__name__}: {reason_of(error)}"
            finding = Finding(state=State.WARNING, found=found, advice="please report it; nothing is known about this")
        self.finding.set_result(finding)


def examine(checks: Mapping[str, Check], machine: Machine) -> tuple[Result, ...]:
    """Run all checks side by side; the whole takes no longer than the slowest may."""
    running = [_Running(name=name, check=check, machine=machine) for name, check in checks.items()]
    for each in running:
        each.start()
    return tuple(each.result() for each in running)

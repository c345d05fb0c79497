"""Reads the plan file again, when it changes and when somebody asks, and hands a new plan on once it is good."""

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vramscope.errors import VramscopeError
from vramscope.events import Event, PlanReloaded, PlanReloadFailed
from vramscope.plan.kinds import StepKind
from vramscope.plan.parse import load_plan
from vramscope.plan.problems import PlanError, Problem
from vramscope.plan.schema import Plan
from vramscope.supervisor.watch import INTERVAL_SECONDS, Watch, is_pipe

ANSWER_SECONDS = 30.0
NO_FILE = "is a pipe or a device, which is read once, at the start: name a file to change the plan in a run"


class ReloadError(VramscopeError):
    """The plan file cannot be used; the plan that runs goes on."""


@dataclass(frozen=True)
class _Read:
    """What a reading found. `digest` tells one content, or one complaint, from another."""

    found: Plan | PlanError
    digest: str


class Reloader:
    """Follows one plan file. `adopt` is called with each new plan, which takes it over when it can."""

    def __init__(
        self,
        plan: Plan,
        kinds: Mapping[str, StepKind],
        adopt: Callable[[Plan], None],
        publish: Callable[[Event], None],
        interval_seconds: float = INTERVAL_SECONDS,
    ) -> None:
        self._path = Path(plan.path)
        self._kinds = kinds
        self._adopt = adopt
        self._publish = publish
        # The last good plan, and the last content, good or bad: a touch changes neither.
        self._good = self._seen = plan.sha256
        if is_pipe(self._path):  # it was read, and is no change
            self._seen = self._read().digest
        self._watch = Watch(lambda: (self._path,), self._read, self._take, interval_seconds)

    async def watch(self) -> None:
        """Follow the file until cancelled."""
        self._watch.start()
        try:
            await asyncio.Event().wait()
        finally:
            self._watch.stop()

    async def reload(self) -> None:
        """Read the file now. Raises ReloadError if it is bad or does not come."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._watch.ask(answer)
        await asyncio.wait({answer}, timeout=ANSWER_SECONDS)
        if not answer.done():
            raise ReloadError(f"{self._path} was not read within {ANSWER_SECONDS:g} s: look at its file system")
        if answer.result():
            raise ReloadError(answer.result())

    def _read(self) -> _Read:
        if is_pipe(self._path):
            return _Read(PlanError([Problem(path=str(self._path), message=NO_FILE)]), NO_FILE)
        try:
            plan = load_plan(self._path, self._kinds)
        except PlanError as error:
            return _Read(error, self._digest(error))
        return _Read(plan, plan.sha256)

    def _digest(self, error: PlanError) -> str:
        """A bad file's identity: its content, and its problems where it cannot be read."""
        try:
            return hashlib.sha256(self._path.read_bytes()).hexdigest()
        except OSError:
            return str(error)

    def _take(self, read: _Read, waiting: list[asyncio.Future[str]]) -> None:
        problem = str(read.found) if isinstance(read.found, PlanError) else ""
        if waiting or read.digest != self._seen:
            self._seen = read.digest
            if isinstance(read.found, PlanError):
                self._publish(PlanReloadFailed(at=time.time(), problem=problem))
            else:
                self._take_over(read.found)
        for answer in waiting:
            if not answer.done():
                answer.set_result(problem)

    def _take_over(self, plan: Plan) -> None:
        is_new = plan.sha256 != self._good
        self._good = plan.sha256
        self._publish(PlanReloaded(at=time.time(), sha256=plan.sha256, is_new=is_new))
        if is_new:
            self._adopt(plan)

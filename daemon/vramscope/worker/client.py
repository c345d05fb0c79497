"""The supervisor's end of the line: starts a worker process, talks to it, and sees to it that it is gone afterwards."""

import asyncio
import contextlib
import json
import logging
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from vramscope.errors import UsageError, WorkerError
from vramscope.events import Event
from vramscope.memory.snapshot import WorkerReady
from vramscope.settings import Deadlines, WorkerSettings
from vramscope.worker.lifecycle import NEXT, Exit, ExitReason, WorkerPhase
from vramscope.worker.protocol import (
    LINE_LIMIT_BYTES,
    Cancel,
    Command,
    Describe,
    Described,
    Refused,
    Shutdown,
    StepReturned,
    decode,
    encode,
)

logger = logging.getLogger(__name__)

POLL_SECONDS = 0.05
DRAIN_SECONDS = 0.5
LARGE_LINE_BYTES = 1 << 18


class WorkerClient:
    """One worker process, from spawn to burial. It is used up when the process is gone."""

    def __init__(
        self, process: asyncio.subprocess.Process, deadlines: Deadlines, publish: Callable[[Event], None]
    ) -> None:
        self._process = process
        self._deadlines = deadlines
        self._publish = publish
        self._phase = WorkerPhase.STARTING
        self._ready: asyncio.Future[WorkerReady] = asyncio.get_running_loop().create_future()
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._heard_at = time.monotonic()
        self._cause: Exit | None = None
        self._given_up = asyncio.Event()
        self.exited: asyncio.Task[Exit] = asyncio.create_task(self._watch())
        self._beats = asyncio.create_task(self._watch_heartbeat())

    @classmethod
    async def spawn(
        cls, settings: WorkerSettings, deadlines: Deadlines, publish: Callable[[Event], None]
    ) -> "WorkerClient":
        """Start a process. It is a new interpreter, never a fork: CUDA does not survive one."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",  # what lies in the user's current directory is no module of ours
            "-m",
            "vramscope.worker.process",
            json.dumps(asdict(settings), default=str),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LINE_LIMIT_BYTES,
            # A Ctrl-C in the terminal is the supervisor's to handle. Not a session of its own, which the kernel would
            # schedule as a whole against the supervisor's (autogroup, sched(7)): the 99th percentile of scrapes during
            # loads was 72 ms then, and 10 ms in one session.
            process_group=0,
        )
        return cls(process, deadlines, publish)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def usable(self) -> bool:
        return self._phase is WorkerPhase.READY

    async def wait_ready(self) -> WorkerReady:
        """The worker's READY. Raises WorkerError if it dies first or takes too long, UsageError if it refuses."""
        await self._first_of(self._ready, self._deadlines.ready)
        if self._ready.done():
            return self._ready.result()
        if self.exited.done():
            raise WorkerError(f"the worker did not start: {self.exited.result().detail}")
        await self.kill(Exit(reason=ExitReason.HUNG, detail="the worker was not ready in time and was killed"))
        raise WorkerError(
            f"the worker was not ready within {self._deadlines.ready:g} s",
            hint="importing torch takes that long on no healthy machine: look at its disk",
        )

    async def send(self, command: Command) -> None:
        if self._process.stdin is None or self._phase in (WorkerPhase.STOPPING, WorkerPhase.GONE):
            raise WorkerError("the worker is gone")
        try:
            self._process.stdin.write(encode(command))
            await self._process.stdin.drain()
        except (BrokenPipeError, ConnectionResetError):
            pass  # its end is reported by `exited`, with the reason

    async def request(self, run: int, command: Command) -> StepReturned:
        """Send a command and wait for the end of `run`. Raises WorkerError when the worker dies before it."""
        answer: StepReturned = await self._ask(run, command)
        return answer

    async def describe(self, command: Describe) -> Described:
        """Ask for the order of models' tensors. Raises WorkerError when the worker dies first or takes too long."""
        answer: Described | None = await self._ask(command.run, command, self._deadlines.describe)
        if answer is None:
            detail = f"the worker did not describe the models within {self._deadlines.describe:g} s and was killed"
            await self.kill(Exit(reason=ExitReason.UNSTOPPABLE, detail=detail))
            raise WorkerError(detail)
        return answer

    async def _ask(self, run: int, command: Command, seconds: float | None = None) -> Any:
        """The answer to a command, None when the time is up. Raises WorkerError when the worker dies first."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[run] = answer
        try:
            await self.send(command)
            await self._first_of(answer, seconds)
            if answer.done():
                return answer.result()
            if self.exited.done():
                raise WorkerError(self.exited.result().detail)
            return None
        finally:
            self._answers.pop(run, None)

    async def cancel(self, run: int) -> bool:
        """Ask the step to stop, and kill the worker if it does not in time; True if it stopped by itself."""
        answer = self._answers.get(run)
        if answer is None or answer.done() or self.exited.done():
            return True
        await self.send(Cancel(run=run))
        await self._first_of(answer, self._deadlines.cancel)
        if answer.done():
            return True
        detail = "the worker did not stop its step when asked and was killed"
        await self.kill(Exit(reason=ExitReason.UNSTOPPABLE, detail=detail))
        return False

    async def stop(self) -> Exit:
        """End the process: ask, terminate, kill, each with its deadline."""
        if self._phase in (WorkerPhase.STARTING, WorkerPhase.READY):
            await self.send(Shutdown())
            self._enter(WorkerPhase.STOPPING)
            if await self._gone_within(self._deadlines.shutdown):
                return self.exited.result()
        self._signal(signal.SIGTERM)
        if await self._gone_within(self._deadlines.terminate):
            return self.exited.result()
        return await self.kill()

    async def kill(self, cause: Exit | None = None) -> Exit:
        """End the process by force; `cause` is what its end is then put down to.

        A process that hangs inside the driver does not even die of this; after a deadline it is given up.
        """
        self._cause = self._cause or cause
        self._signal(signal.SIGKILL)
        if not await self._gone_within(self._deadlines.kill):
            self._given_up.set()
        return await self.exited

    async def _first_of(self, wanted: asyncio.Future[Any], seconds: float | None) -> None:
        """Wait for `wanted` or for the process's end, whichever is first, or until the time is up."""
        either: set[asyncio.Future[Any]] = {wanted, self.exited}
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):  # it may have ended by itself in the meantime
            self._process.send_signal(number)

    async def _gone_within(self, seconds: float) -> bool:
        await asyncio.wait({self.exited}, timeout=seconds)
        return self.exited.done()

    def _enter(self, phase: WorkerPhase) -> None:
        if phase not in NEXT[self._phase]:
            raise WorkerError(f"a worker that is {self._phase.value} cannot become {phase.value}")
        self._phase = phase

    async def _watch(self) -> Exit:
        """Read what the process says until it is dead; whoever else holds its pipes open does not matter then."""
        streams = {asyncio.create_task(self._read()), asyncio.create_task(self._read_errors())}
        await self._until_dead()
        await asyncio.wait(streams, timeout=DRAIN_SECONDS)
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
        self._enter(WorkerPhase.GONE)
        self._beats.cancel()
        return self._describe(self._process.returncode)

    async def _until_dead(self) -> None:
        """Return when the process is dead or given up. asyncio's own wait also waits for its pipes to close."""
        while self._process.returncode is None and not self._given_up.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._given_up.wait()

    async def _read(self) -> None:
        if self._process.stdout is None:
            return
        try:
            async for line in self._process.stdout:
                self._heard_at = time.monotonic()
                self._handle(await self._decode(line))
        except (WorkerError, ValueError) as error:  # ValueError: a line beyond the limit
            detail = f"the worker broke the protocol and was killed: {error}"
            self._cause = Exit(reason=ExitReason.PROTOCOL, detail=detail)
            self._signal(signal.SIGKILL)

    @staticmethod
    async def _decode(line: bytes) -> object:
        """Decode a message, a large one (the tensors of a large model) in a thread: a scrape must not wait for it."""
        if len(line) < LARGE_LINE_BYTES:
            return decode(line, printable=True)
        return await asyncio.to_thread(decode, line, printable=True)

    async def _read_errors(self) -> None:
        """What libraries and tracebacks write becomes log lines."""
        if self._process.stderr is None:
            return
        try:
            async for line in self._process.stderr:
                logger.warning("worker_output", extra={"line": line.decode(errors="backslashreplace").rstrip()})
        except ValueError as error:  # a line beyond the limit
            logger.warning("worker_output", extra={"line": f"(unreadable: {error})"})

    def _handle(self, message: object) -> None:
        match message:
            case WorkerReady() if self._phase is WorkerPhase.STARTING:
                self._enter(WorkerPhase.READY)
                self._publish(message)
                self._ready.set_result(message)
            case Refused() if not self._ready.done():
                self._ready.set_exception(UsageError(message.message))
            case StepReturned() | Described():
                if (answer := self._answers.get(message.run)) is not None and not answer.done():
                    answer.set_result(message)
            case Event() if self._phase is not WorkerPhase.STOPPING:
                self._publish(message)
            case _:
                pass  # a heartbeat has done its work by arriving

    async def _watch_heartbeat(self) -> None:
        """Kill a worker that says nothing at all: stopped, or stuck with the interpreter's lock held."""
        while True:
            await asyncio.sleep(1.0)
            if time.monotonic() - self._heard_at > self._deadlines.heartbeat:
                detail = f"the worker was silent for {self._deadlines.heartbeat:g} s and was killed"
                self._cause = Exit(reason=ExitReason.HUNG, detail=detail)
                self._signal(signal.SIGKILL)
                return

    def _describe(self, code: int | None) -> Exit:
        if code is None:
            detail = f"the worker (pid {self.pid}) does not die, as if stuck inside the driver, and was given up"
            return Exit(reason=ExitReason.UNKILLABLE, detail=detail)
        if self._cause is not None:
            return self._cause
        if code >= 0:
            return Exit(reason=ExitReason.EXIT, detail=f"the worker ended with exit code {code}")
        try:
            name = signal.Signals(-code).name
        except ValueError:  # real-time signals have no name
            name = f"signal {-code}"
        return Exit(reason=ExitReason.SIGNAL, detail=f"the worker was killed by {name}")

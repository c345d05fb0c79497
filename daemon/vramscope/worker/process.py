"""The child process: it owns torch and the CUDA context, and runs one step at a time.

Standard input carries commands and standard output messages; what anything else prints goes to standard error. The
process ends when its input ends, so it never outlives its supervisor.
"""

import gc
import json
import os
import queue
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from functools import partial
from typing import IO, TYPE_CHECKING, Any

from pydantic import TypeAdapter

from vramscope.errors import StepCancelledError, StickyDeviceError, UsageError, VramscopeError, reason_of
from vramscope.events import Outcome
from vramscope.memory.configuration import read_configuration
from vramscope.memory.snapshot import WorkerReady
from vramscope.settings import WorkerSettings, stay_offline
from vramscope.steps._catalog import step_kinds
from vramscope.worker.imports import import_transformers
from vramscope.worker.protocol import (
    Cancel,
    Command,
    Configure,
    Describe,
    Described,
    Heartbeat,
    Message,
    OpenDevices,
    Refused,
    Reset,
    RunStep,
    Shutdown,
    StepReturned,
    decode,
    encode,
)
from vramscope.worker.readahead import ReadAhead
from vramscope.worker.reporter import Reporter

if TYPE_CHECKING:
    from vramscope.worker.bench import Bench

HEARTBEAT_SECONDS = 1.0
EXIT_DONE = 0
EXIT_PROTOCOL = 3


class Channel:
    """Standard input and output, kept to the protocol."""

    def __init__(self) -> None:
        """Take the protocol's descriptors away from everybody else: prints go to stderr, reads find nothing."""
        self._out: IO[bytes] = os.fdopen(os.dup(1), "wb")
        self._in: IO[bytes] = os.fdopen(os.dup(0), "rb")
        os.dup2(2, 1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        self._lock = threading.Lock()

    def send(self, message: Message) -> None:
        with self._lock:
            try:
                self._out.write(encode(message))
                self._out.flush()
            except BrokenPipeError:
                os._exit(EXIT_DONE)  # nobody listens: the supervisor is gone

    def commands(self) -> IO[bytes]:
        return self._in


class Worker:
    """Hands commands from the reading thread to the one thread that uses torch."""

    def __init__(self, channel: Channel, ahead: ReadAhead) -> None:
        self._channel = channel
        self._ahead = ahead
        self._commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self._running: tuple[int, Reporter] | None = None
        self._cancelled: set[int] = set()
        self._finished = 0
        self._lock = threading.Lock()

    def start(self) -> None:
        threading.Thread(target=self._read, name="commands", daemon=True).start()
        threading.Thread(target=self._beat, name="heartbeat", daemon=True).start()

    def serve(self, bench: "Bench") -> None:
        """Run commands, forever: the reading thread ends the process."""
        kinds = step_kinds()
        while True:
            match command := self._commands.get():
                case Configure():
                    bench.specs = command.models
                    bench.default_device = command.device
                case RunStep():
                    self._ahead.stop()
                    self._answer(bench, command, partial(self._run, bench, kinds, command))
                case Describe():
                    self._channel.send(_describe(bench, command))
                case OpenDevices():
                    step = RunStep(run=command.run, step="open", kind="open", model="", fields={})
                    self._answer(bench, step, partial(_open_devices, bench))
                case Reset():
                    step = RunStep(run=command.run, step="reset", kind="reset", model="", fields={})
                    self._answer(bench, step, partial(self._reset, bench, command))

    def _run(self, bench: "Bench", kinds: Any, command: RunStep, reporter: Reporter) -> Any:
        from vramscope.worker.bench import StepBench  # noqa: PLC0415 - imports torch, which must come after `start`

        kind = kinds[command.kind]
        for device in bench.devices.values():
            device.reset_peak()
        reporter.peak.begin()
        return kind.run(StepBench(bench, reporter), kind.fields(**command.fields))

    @staticmethod
    def _reset(bench: "Bench", command: Reset, reporter: Reporter) -> dict[str, Any]:
        bench.unload_all()
        reporter.tell(bench.give_back.measure_rest())
        if command.release:
            bench.release_caches()
        return {}

    def _answer(self, bench: "Bench", command: RunStep, work: Callable[[Reporter], Any]) -> None:
        run = command.run
        reporter = Reporter(command, self._channel.send)
        with self._lock:
            self._running = (run, reporter)
            if run in self._cancelled:
                reporter.cancel()
        answer = self._outcome(run, work, reporter)
        with self._lock:
            self._running = None
            self._finished = run
            self._cancelled.discard(run)
        self._channel.send(bench.memory())
        self._channel.send(answer)

    def _outcome(self, run: int, work: Callable[[Reporter], Any], reporter: Reporter) -> StepReturned:
        """Do the work; no exception leaves here, and none is kept: its frames would hold tensors."""
        try:
            return StepReturned(run=run, outcome=Outcome.SUCCEEDED, facts=dict(work(reporter)))
        except StepCancelledError as error:
            return StepReturned(run=run, outcome=Outcome.CANCELLED, error=error.trouble)
        except VramscopeError as error:
            return StepReturned(
                run=run, outcome=Outcome.FAILED, error=str(error), fatal=isinstance(error, StickyDeviceError)
            )
        except MemoryError as error:
            return StepReturned(run=run, outcome=Outcome.FAILED, error=f"the host has not enough memory: {error}")
        except Exception as error:  # noqa: BLE001 - the border of one step: whatever a model does, the worker goes on
            traceback.print_exc()
            return StepReturned(run=run, outcome=Outcome.FAILED, error=f"{type(error).__name__}: {reason_of(error)}")

    def _read(self) -> None:
        """Take commands until told to end, or until the supervisor is gone; then the process ends.

        The main thread may be deep in torch for minutes, and taking the interpreter down in order takes a second;
        memory and CUDA context go back to the system either way.
        """
        try:
            for line in self._channel.commands():
                command = decode(line)
                if isinstance(command, Shutdown):
                    break
                if isinstance(command, Cancel):
                    self._cancel(command.run)
                else:
                    self._commands.put(command)
        except VramscopeError:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(EXIT_PROTOCOL)
        os._exit(EXIT_DONE)

    def _cancel(self, run: int) -> None:
        with self._lock:
            if self._running is not None and self._running[0] == run:
                self._running[1].cancel()
            elif run > self._finished:
                self._cancelled.add(run)  # it is still in the queue

    def _beat(self) -> None:
        while True:
            time.sleep(HEARTBEAT_SECONDS)
            self._channel.send(Heartbeat())


def _describe(bench: "Bench", command: Describe) -> Described:
    orders, problems = {}, {}
    for model in command.models:
        try:
            orders[model] = bench.describe(model, from_config=command.from_config)
        except VramscopeError as error:
            problems[model] = str(error)
        except Exception as error:  # noqa: BLE001 - the border of one model: what it does must not end the worker
            traceback.print_exc()
            problems[model] = f"{type(error).__name__}: {reason_of(error)}"
    if not bench.models:  # what is frozen is never collected: that is for classes, not for models
        gc.collect()
        gc.freeze()
    return Described(run=command.run, orders=orders, problems=problems)


def _open_devices(bench: "Bench", _reporter: Reporter) -> dict[str, Any]:
    for device in bench.devices.values():
        device.open()
    return {}


def _open_bench(settings: WorkerSettings) -> tuple["Bench", WorkerReady]:
    """Import torch and everything that steps need, choose the devices, and say what was found."""
    began = time.perf_counter()
    gc.disable()  # full collections of half-made modules are a third of the import time
    import torch  # noqa: PLC0415 - the supervisor's deadline runs from the process start, and can see us alive by now

    import_transformers()
    import transformers  # noqa: PLC0415

    from vramscope.devices.choice import choose_devices  # noqa: PLC0415
    from vramscope.loading.assemble import quiet_transformers  # noqa: PLC0415
    from vramscope.worker.bench import Bench  # noqa: PLC0415

    quiet_transformers()
    gc.enable()
    gc.freeze()  # what is imported stays: later collections need not look at it
    backend, reason, devices = choose_devices(
        settings.device_mode, settings.simulation, read_configuration(os.environ).settings
    )
    ready = WorkerReady(
        at=time.time(),
        pid=os.getpid(),
        backend=backend,
        reason=reason,
        versions={
            "python": sys.version.split()[0],
            "torch": torch.__version__,
            "transformers": transformers.__version__,
            "cuda": torch.version.cuda or "",
        },
        devices=tuple(device.facts() for device in devices.values()),
        import_seconds=time.perf_counter() - began,
    )
    return Bench(settings, devices), ready


def main() -> None:
    """Run the worker with the settings in the first argument (JSON of WorkerSettings)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole terminal group; the supervisor decides
    channel = Channel()
    settings = TypeAdapter(WorkerSettings).validate_python(json.loads(sys.argv[1]))
    ahead = ReadAhead(settings)
    worker = Worker(channel, ahead)
    worker.start()
    ahead.start()
    stay_offline(os.environ)  # a download runs in a process of its own
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    try:
        bench, ready = _open_bench(settings)
    except UsageError as error:
        channel.send(Refused(message=str(error)))
        return
    channel.send(bench.memory())  # before READY, so that the first step finds a picture of what was there before
    channel.send(ready)
    worker.serve(bench)


if __name__ == "__main__":
    main()

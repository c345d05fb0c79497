"""The `machine` fixture: a machine with stub GPUs, whose settings can change while programs run on it.

The tests here run in the environment that `rig/prepare.py` makes; in another one they are skipped.
"""

import importlib.util
import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
READY = importlib.util.find_spec("cuda_stub_activation") is not None
# Would change what torch does or sees behind the tests' back; the last would have each program compile all of torch.
UNWANTED = ("CUDA_VISIBLE_DEVICES", "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTHONDONTWRITEBYTECODE")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    skip = pytest.mark.skip(reason="needs the environment that rig/prepare.py makes: `make test-cuda-stub`")
    for item in items:
        if not READY and HERE in item.path.parents:
            item.add_marker(skip)


OBSERVER = """
import threading, time
import pynvml as nvml
nvml.nvmlInit()
devices = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
def used(device):
    return nvml.nvmlDeviceGetMemoryInfo(device, version=nvml.nvmlMemory_v2).used / (1 << 20)
def pids(device):
    return [process.pid for process in nvml.nvmlDeviceGetComputeRunningProcesses(device)]
seen = [set() for device in devices]
def watch():
    while True:
        for device, known in zip(devices, seen):
            known.update(pids(device))
        time.sleep(0.01)
"""


class RemoteError(Exception):
    """What the code in a console raised; `kind` is the name of the exception's type."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class Console:
    """A Python process on the machine that runs the statements it is given, one request after the other."""

    def __init__(self, env: dict[str, str]) -> None:
        command = [sys.executable, str(HERE / "console.py")]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)

    @property
    def pid(self) -> int:
        return self.process.pid

    def run(self, code: str, *, timeout_seconds: float = 60) -> Any:
        """Run `code`; return what its last expression gave. Raises RemoteError, or TimeoutError without an answer."""
        self.send(code)
        return self.receive(timeout_seconds)

    def send(self, code: str) -> None:
        """Have `code` run without waiting for it."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"code": code}).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self, timeout_seconds: float) -> Any:
        """Return the answer to what was sent."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], timeout_seconds)[0]:
            raise TimeoutError(f"no answer within {timeout_seconds} s")
        line = self.process.stdout.readline()
        if not line:
            raise EOFError(f"the process ended with {self.process.wait(timeout=60)}")
        answer = json.loads(line)
        if "error" in answer:
            raise RemoteError(*answer["error"])
        return answer["value"]

    def close(self) -> None:
        """End the process in order, as a program that returns from main()."""
        self.process.communicate(timeout=60)

    def kill(self) -> None:
        """End the process with SIGKILL."""
        self.process.kill()
        self.process.communicate(timeout=60)


class Machine:
    """A machine with stub GPUs: its settings (rig/README.md lists the keys), its state, and programs that run on it."""

    def __init__(self, folder: Path) -> None:
        self._control = folder / "control"
        self._state = folder / "state"
        self._settings: dict[str, str] = {}
        self._consoles: list[Console] = []
        self._looking: Console | None = None
        self.configure()

    def configure(self, **settings: str | float) -> None:
        """Change settings at once, for running programs too: `configure(total_mib=4096, data="discard")`.

        One device's value has its number in the key: `configure(**{"name.1": "Second"})`.
        """
        self._settings.update({key: str(value) for key, value in settings.items()})
        text = "".join(f"{key} = {value}\n" for key, value in self._settings.items())
        fresh = self._control.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self._control)

    def fail(self, function: str, how: str | int) -> None:
        """Make a function fail: `fail("cudaMalloc", "2 @after=3")`, `fail("nvml*", "GPU_IS_LOST")`, `"hang:0.5"`."""
        self.configure(**{f"fault.{function}": how})

    def mend(self) -> None:
        """Take all faults away."""
        self._settings = {key: value for key, value in self._settings.items() if not key.startswith("fault.")}
        self.configure()

    def env(self, **extra: str) -> dict[str, str]:
        """Return the environment of a program on this machine: with it, any Python of this venv has the stub GPUs."""
        inherited = {key: value for key, value in os.environ.items() if key not in UNWANTED}
        own = {"STUBCUDA_CONTROL": str(self._control), "STUBCUDA_STATE": str(self._state), "VRAMSCOPE_CUDA_STUB": "1"}
        return inherited | own | extra

    def python(self, *arguments: str, **extra: str) -> str:
        """Run Python with these arguments to its end and return what it printed; raises if it fails."""
        command = [sys.executable, *arguments]
        done = subprocess.run(command, env=self.env(**extra), capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def console(self, code: str = "", **extra: str) -> Console:
        """Start a process that runs `code`, and what it is given afterwards, until the test ends."""
        console = Console(self.env(**extra))
        self._consoles.append(console)
        console.run(code)
        return console

    def used_mib(self) -> list[float]:
        """What NVML says is used of each device, in MiB."""
        return self._observer().run("[used(device) for device in devices]")

    def pids(self) -> list[list[int]]:
        """The processes that NVML lists for each device."""
        return self._observer().run("[pids(device) for device in devices]")

    def watch(self) -> None:
        """Begin to remember every process that NVML lists, a hundred times a second."""
        self._observer().run("threading.Thread(target=watch, daemon=True).start()")

    def seen_pids(self) -> list[list[int]]:
        """The processes that were seen on each device since `watch` was called."""
        return self._observer().run("[sorted(known) for known in seen]")

    def _observer(self) -> Console:
        """A process that looks at NVML and never uses a device."""
        if self._looking is None:
            self._looking = self.console(OBSERVER)
        return self._looking

    def close(self) -> None:
        """End every console."""
        for console in self._consoles:
            console.kill()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    """A machine of the test's own, with one stub GPU of 12 GiB."""
    folder = tmp_path / "machine"
    folder.mkdir()
    machine = Machine(folder)
    yield machine
    machine.close()


@pytest.fixture(scope="session")
def checkpoint_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where synthetic checkpoints are kept for all tests; a full-size one takes 1 GB, so none is left behind."""
    folder = tmp_path_factory.mktemp("synthetic")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def shared_machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A machine that the tests of one file share; for what is slow to measure and changes nothing."""
    machine = Machine(tmp_path_factory.mktemp("machine"))
    yield machine
    machine.close()

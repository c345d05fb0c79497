"""A machine with NVIDIA devices as far as NVML goes: fake_nvml.c, compiled, and the file that says what it answers."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CONSOLE = HERE.parent / "cuda_stub" / "console.py"
MIB = 1 << 20
GIB = 1 << 30
UNKNOWN = 2**64 - 1
TOTAL = 80 * GIB
# NVML's codes.
NOT_SUPPORTED, NO_PERMISSION, DRIVER_NOT_LOADED, LIBRARY_NOT_FOUND = 3, 4, 9, 12
GPU_IS_LOST, MISMATCH, VERSION_MISMATCH, UNKNOWN_ERROR = 15, 18, 25, 999
# Passes as the program that asks.
SELF = "self"

Listed = tuple[int | str, int]


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One device of the machine; `code` and its kin are what NVML's functions return. `of` makes it a MIG instance."""

    total: int = TOTAL
    used: int = GIB
    free: int | None = None
    reserved: int = 0
    code: int = 0
    code2: int | None = None
    memory2: tuple[int, int, int, int] | None = None
    handle: int = 0
    uuid: str = ""
    name: str = "NVIDIA FAKE"
    pci: str = ""
    compute: Iterable[Listed] = ()
    graphics: Iterable[Listed] = ()
    mps: Iterable[Listed] = ()
    list_code: int = 0
    insufficient: bool = False
    of: int | None = None
    number: int = 0
    instances: tuple[int, int] = (0, 0)

    def lines(self, index: int) -> Iterator[str]:
        free = self.total - self.used - self.reserved if self.free is None else self.free
        second = self.memory2 or (self.total, self.reserved, free, self.used)
        code2 = self.code if self.code2 is None else self.code2
        device = f"dev {index}"
        yield f"{device} uuid {self.uuid or f'GPU-{index:08x}-0000-0000-0000-000000000000'}"
        yield f"{device} name {self.name}"
        yield f"{device} pci {self.pci}"
        yield f"{device} handle {self.handle}"
        yield f"{device} mem {self.code} {self.total} {free} {self.used + self.reserved}"
        yield f"{device} mem2 {code2} {' '.join(map(str, second))}"
        yield f"{device} list {self.list_code}{' insufficient' if self.insufficient else ''}"
        for kind in ("compute", "graphics", "mps"):
            yield from (f"{device} proc {kind} {pid} {nbytes}" for pid, nbytes in getattr(self, kind))
        if self.of is not None:
            yield f"mig {self.of} {index} {self.number} {self.instances[0]} {self.instances[1]}"


@dataclass
class FakeNvml:
    """The machine. `libraries` are the directories of today's library and of that of an old driver."""

    libraries: tuple[Path, Path]
    directory: Path

    def set(
        self,
        *gpus: Gpu,
        init: int = 0,
        count: int | None = None,
        count_code: int = 0,
        sleep: int = 0,
        versions: tuple[str, int] = ("", 0),
    ) -> None:
        """Let the machine be so from the next call on; `sleep` is the milliseconds that each question takes.

        A question that waits is answered as soon as a later call wants no such wait.
        `versions` are the driver's own, and of the newest CUDA that it runs (12040 is 12.4).
        """
        whole = sum(gpu.of is None for gpu in gpus) if count is None else count
        lines = [f"init {init}", f"count {whole} {count_code}", f"sleep {sleep}"]
        lines += [f"driver {versions[0]}", f"cuda {versions[1]}"]
        lines += [line for index, gpu in enumerate(gpus) for line in gpu.lines(index)]
        new = self.directory / "new"
        new.write_bytes("".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape"))
        new.replace(self.directory / "machine")

    def environment(self, *, old: bool = False, **variables: str) -> dict[str, str]:
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(self.libraries[old]),
            "FAKE_NVML": str(self.directory / "machine"),
            "FAKE_NVML_INITS": str(self.directory / "inits"),
            **variables,
        }

    def inits(self) -> int:
        """How often NVML was started."""
        path = self.directory / "inits"
        return len(path.read_text().splitlines()) if path.exists() else 0


class Console:
    """A Python process on that machine, which runs the statements it is given."""

    def __init__(self, machine: FakeNvml, **options: Any) -> None:
        environment = machine.environment(**options)
        environment["PYTHONPATH"] = str(HERE.parents[1] / "daemon")
        self._process = subprocess.Popen(
            [sys.executable, str(CONSOLE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        )

    def run(self, code: str) -> Any:
        """What the last expression of `code` gave."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"code": code}).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, answer["error"]
        return answer["value"]

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def console_of(machine: FakeNvml, code: str, **options: Any) -> Iterator[Console]:
    """A console that has run `code`, for as long as the block lasts."""
    console = Console(machine, **options)
    try:
        console.run(code)
        yield console
    finally:
        console.close()


def build(directory: Path) -> tuple[Path, Path]:
    """Compile both libraries; skips the test where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("needs a C compiler for the stand-in of libnvidia-ml")
    for name, options in (("new", []), ("old", ["-DOLD"])):
        (directory / name).mkdir()
        library = directory / name / "libnvidia-ml.so.1"
        command = [compiler, "-shared", "-fPIC", "-O1", *options, "-o", str(library), str(HERE / "fake_nvml.c")]
        subprocess.run(command, check=True, timeout=100)
    return directory / "new", directory / "old"

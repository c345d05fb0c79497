"""The build of PyTorch against the driver: its release, and the CUDA version that it was built for.

Both stand in torch/version.py, which is read as text: importing torch takes seconds. Only where that file says nothing
is torch imported, in a process of its own with a deadline. A driver runs every build for its own CUDA major version or
an older one (https://docs.nvidia.com/deploy/cuda-compatibility/).
"""

import json
import queue
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from vramscope.devices.cards import Versions
from vramscope.devices.nvml import Nvml, NvmlError
from vramscope.doctor._frame import Check, Finding, Machine, State
from vramscope.doctor._hardware import gpus, kernel_module

IMPORT_SECONDS = 45.0
DRIVER_SECONDS = 3.0
_ASK = "import json, torch; print(json.dumps([torch.__version__, torch.version.cuda]))"
_VERSION = re.compile(r"^__version__\s*=\s*'([^']+)'", re.MULTILINE)
_CUDA = re.compile(r"^cuda\s*(?::[^=]*)?=\s*(None|'([^']*)')", re.MULTILINE)
_INSTALL = "install a build of torch for this driver: https://pytorch.org/get-started/locally/"


@dataclass(frozen=True, kw_only=True)
class Build:
    """A build of torch; `cuda` is empty for one without CUDA."""

    version: str
    cuda: str

    @property
    def cuda_major(self) -> int | None:
        major = self.cuda.partition(".")[0]
        return int(major) if major.isdecimal() else None


def _look(machine: Machine) -> Finding:
    if (home := _home()) is None:
        return Finding(state=State.PROBLEM, found="torch is not installed", advice="install it: `pip install torch`")
    try:
        build = read_build(home) or _import_build()
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        found = f"torch cannot be imported: {_last_line(error)}"
        return Finding(
            state=State.PROBLEM, found=found, advice="install it anew: `pip install --force-reinstall torch`"
        )
    return judge(machine, build, _driver())


def judge(machine: Machine, build: Build, driver: Versions) -> Finding:
    """What a build means beside a driver, of which nothing may be known."""
    if not build.cuda:
        if gpus(machine) or kernel_module(machine) is not None:
            return machine.without_gpu(f"torch {build.version} is built without CUDA", _INSTALL)
        return Finding(state=State.OK, found=f"torch {build.version}, built without CUDA; there is no GPU either")
    found = f"torch {build.version}, built for CUDA {build.cuda}"
    if driver.cuda is None or build.cuda_major is None:
        return Finding(state=State.OK, found=f"{found}; no driver says what it supports")
    if build.cuda_major > driver.cuda // 1000:
        advice = f"update the driver to one for CUDA {build.cuda_major}, or {_INSTALL}"
        return machine.without_gpu(f"{found}, and the driver supports CUDA up to {driver.cuda_text}", advice)
    return Finding(state=State.OK, found=f"{found}; the driver supports CUDA up to {driver.cuda_text}")


def read_build(home: Path) -> Build | None:
    """The build as the package's own file tells it, without running it; None where the file does not."""
    try:
        text = (home / "version.py").read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    version, cuda = _VERSION.search(text), _CUDA.search(text)
    return Build(version=version[1], cuda=cuda[2] or "") if version and cuda else None


def _import_build() -> Build:
    """The build as torch itself tells it. Raises OSError, SubprocessError, ValueError."""
    command = [sys.executable, "-P", "-c", _ASK]
    told = subprocess.run(command, capture_output=True, timeout=IMPORT_SECONDS, check=True)  # noqa: S603 - our own code
    version, cuda = json.loads(told.stdout)
    return Build(version=version, cuda=cuda or "")


def _last_line(error: Exception) -> str:
    """What the process said last, or why there was no answer."""
    told = getattr(error, "stderr", None) or b""
    lines = told.decode(errors="replace").split("\n") if isinstance(told, bytes) else []
    return next((line.strip() for line in reversed(lines) if line.strip()), str(error))


def _home() -> Path | None:
    try:
        spec = find_spec("torch")
    except (ImportError, ValueError):
        return None
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _driver() -> Versions:
    """What the driver says of itself; nothing where it does not answer in time, which the check of NVML tells."""
    answers: queue.SimpleQueue[Versions] = queue.SimpleQueue()
    threading.Thread(target=lambda: answers.put(_ask_driver()), name="doctor-torch-driver", daemon=True).start()
    try:
        return answers.get(timeout=DRIVER_SECONDS)
    except queue.Empty:
        return Versions()


def _ask_driver() -> Versions:
    nvml = Nvml()
    try:
        nvml.start()
        return nvml.versions()
    except NvmlError:
        return Versions()
    finally:
        nvml.stop()


CHECK = Check(title="torch", look=_look, seconds=IMPORT_SECONDS + 5)

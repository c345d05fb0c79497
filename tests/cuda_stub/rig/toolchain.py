"""What building the rig needs of the machine: platform, compiler, CUDA headers; and how commands are run."""

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

# The stub's structures are those of CUDA 13: torch is built against that major version.
CUDA_MAJOR = 13
HEADER_PACKAGES = ("nvidia-cuda-runtime==13.0.96", "nvidia-cuda-crt==13.0.88")
TOOLKIT_FOLDERS = "usr/local/cuda*"


class MissingError(Exception):
    """Something that the rig needs is not here; the text says what, and how to get it."""


def run(command: Sequence[str | Path]) -> str:
    """Run a command to its end and return what it printed; raises CalledProcessError with its output."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout


def require_tools() -> None:
    """Raise MissingError unless the platform is right and the compiler and binutils are installed."""
    system = f"{platform.system()} {platform.machine()}"
    if system != "Linux x86_64":
        raise MissingError(f"the CUDA stub is built for Linux x86_64 only, and this is {system}")
    if sys.implementation.name != "cpython":
        raise MissingError("the CUDA stub needs CPython, since torch's wheels do: run this with python3")
    for tool in ("gcc", "nm", "objdump"):
        if shutil.which(tool) is None:
            raise MissingError(f"{tool} is not installed: apt-get install gcc binutils (or your system's packages)")


def find_headers(fallback: Path, python: Path) -> Path:
    """Return a folder with cuda.h and cuda_runtime_api.h: CUDA_HOME's, an installed toolkit's, or NVIDIA's wheels'.

    The wheels are unpacked to `fallback`, outside site-packages: nothing may find the real libcudart in them.
    """
    home = os.environ.get("CUDA_HOME")
    toolkits = [Path(home)] if home else sorted(Path("/").glob(TOOLKIT_FOLDERS))
    for toolkit in toolkits:
        if _is_usable(toolkit / "include"):
            return toolkit / "include"
    include = fallback / "nvidia" / f"cu{CUDA_MAJOR}" / "include"
    if not _is_usable(include):
        try:
            run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--target", fallback, *HEADER_PACKAGES])
        except subprocess.CalledProcessError as error:
            raise MissingError(
                f"no headers of CUDA {CUDA_MAJOR}: install its toolkit, or let pip install {' '.join(HEADER_PACKAGES)}"
                f" ({last_line(error.stdout)})"
            ) from error
    return include


def last_line(output: str) -> str:
    """Return the last line with text in it: where pip and gcc say what failed."""
    return next((line.strip() for line in reversed(output.splitlines()) if line.strip()), "no output")


def _is_usable(include: Path) -> bool:
    runtime = include / "cuda_runtime_api.h"
    if not runtime.is_file() or not (include / "cuda.h").is_file():
        return False
    version = re.search(r"#define\s+CUDART_VERSION\s+(\d+)", runtime.read_text(errors="replace"))
    return version is not None and int(version[1]) // 1000 == CUDA_MAJOR

"""Reads from torch's shared libraries which libraries and functions of NVIDIA they want."""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from toolchain import run

RUNTIME = "libcudart.so.13"
DRIVER = "libcuda.so.1"
MANAGEMENT = "libnvidia-ml.so.1"

# Functions of these libraries carry no version that names the library.
LIBRARY_OF_PREFIX = {
    "cusparseLt": "libcusparseLt.so.0",
    "nccl": "libnccl.so.2",
    "cuFile": "libcufile.so.0",
    "nvshmem": "libnvshmem_host.so.3",
}


@dataclass
class Imports:
    """What is wanted of one library: its functions, and the symbol version that they carry, if any."""

    functions: set[str] = field(default_factory=set)
    version: str | None = None


def read_imports(torch_lib: Path) -> dict[str, Imports]:
    """Return what all of torch's libraries together want of each NVIDIA library, by its SONAME."""
    wanted: dict[str, Imports] = defaultdict(Imports)
    for path in sorted(torch_lib.glob("*.so")):
        for soname in re.findall(r"NEEDED\s+(lib(?:cu|nccl|nv)\S+)", run(["objdump", "-p", path])):
            wanted[soname]  # a library may be needed without a function of it
        for line in run(["nm", "-D", "--undefined-only", path]).splitlines():
            name, _, version = line.split()[-1].partition("@")
            soname = _library_of(name, version)
            if soname is None:
                continue
            wanted[soname].functions.add(name)
            if version:
                wanted[soname].version = version
    return dict(wanted)


def _library_of(function: str, version: str) -> str | None:
    """NVIDIA versions a function by its library's SONAME, in the libraries that version at all."""
    if version.startswith(("libcu", "libnv")):
        return version
    return next((soname for prefix, soname in LIBRARY_OF_PREFIX.items() if function.startswith(prefix)), None)

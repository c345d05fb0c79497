"""Compiles the stub libraries: runtime, driver and NVML from src/, and stand-ins for the rest that torch links to.

The stand-ins (cuBLAS, cuDNN, NCCL, ...) have every function that torch imports; each returns an error.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from toolchain import run
from torch_imports import DRIVER, MANAGEMENT, RUNTIME, Imports

SHARED_SOURCES = ("settings.c", "faults.c", "trace.c", "machine.c")
DRIVER_SOURCES = (*SHARED_SOURCES, "devices.c", "memory.c", "driver.c")
NOT_SUPPORTED = 801  # cudaErrorNotSupported

# Asked by torch when it is imported or describes itself; an error there would end the program.
SPECIAL = {
    "cudnnGetVersion": "unsigned long cudnnGetVersion(void) { return 92400; }",
    "cudnnGetCudartVersion": "unsigned long cudnnGetCudartVersion(void) { return 13000; }",
    "ncclGetVersion": "int ncclGetVersion(int *version) { *version = 23007; return 0; }",
    "nvrtcVersion": "int nvrtcVersion(int *major, int *minor) { *major = 13; *minor = 0; return 0; }",
}


@dataclass(frozen=True)
class Workshop:
    """Where the libraries are built: sources, headers, a folder for what is in between, and one for the results."""

    sources: Path
    headers: Path
    scratch: Path
    results: Path

    def build(self, wanted: dict[str, Imports]) -> None:
        """Build everything; `wanted` is what torch imports, by library."""
        for folder in (self.scratch, self.results):
            folder.mkdir(parents=True, exist_ok=True)
        self._link(DRIVER, self._sources(*DRIVER_SOURCES))
        self._link(MANAGEMENT, self._sources(*SHARED_SOURCES, "nvml.c"))
        self._build_runtime(wanted[RUNTIME].functions)
        for soname in sorted(wanted.keys() - {DRIVER, MANAGEMENT, RUNTIME}):
            self._build_stand_in(soname, wanted[soname])

    def _sources(self, *names: str) -> list[Path]:
        return [self.sources / name for name in names]

    def _build_runtime(self, wanted: set[str]) -> None:
        runtime = self.scratch / "runtime.o"
        run([*self._gcc(), "-c", "-o", runtime, self.sources / "runtime.c"])
        symbols = [line.split() for line in run(["nm", "--defined-only", runtime]).splitlines()]
        defined = {name for _, kind, name in symbols if kind == "T"}
        body = "\n".join(_unsupported(function) for function in sorted(wanted - defined))
        missing = self._write("unsupported.c", f'#include "trace.h"\n{body}\n')
        exports = self._write("runtime.map", f"{RUNTIME} {{ global: cuda*; __cuda*; local: *; }};\n")
        # `-l:` with the results' folder, and $ORIGIN: the driver is found beside the runtime.
        driver: list[str | Path] = ["-L", self.results, f"-l:{DRIVER}", "-Wl,-rpath,$ORIGIN"]
        self._link(RUNTIME, [runtime, missing], f"-Wl,--version-script={exports}", *driver)

    def _build_stand_in(self, soname: str, imports: Imports) -> None:
        functions = "\n".join(_stand_in(function, soname) for function in sorted(imports.functions))
        source = self._write(f"{soname}.c", functions + "\n")
        options: list[str] = ["-w", "-fno-builtin"]
        if imports.version:
            exports = self._write(f"{soname}.map", f"{imports.version} {{ global: *; }};\n")
            options.append(f"-Wl,--version-script={exports}")
        self._link(soname, [source], *options)

    def _gcc(self) -> list[str | Path]:
        warnings = ["-Wall", "-Wextra", "-Wno-unused-parameter"]
        return ["gcc", "-O2", "-g", *warnings, "-fPIC", "-isystem", self.headers, "-I", self.sources]

    def _link(self, soname: str, inputs: list[Path], *options: str | Path) -> None:
        target = self.results / soname
        run([*self._gcc(), "-shared", f"-Wl,-soname,{soname}", "-o", target, *inputs, *options, "-lpthread", "-ldl"])

    def _write(self, name: str, text: str) -> Path:
        path = self.scratch / name
        path.write_text(text)
        return path


def _unsupported(function: str) -> str:
    trace = f'stub_trace("{{\\"op\\":\\"unsupported\\",\\"function\\":\\"{function}\\"}}");'
    return f"int {function}(void) {{ {trace} return {NOT_SUPPORTED}; }}"


def _stand_in(function: str, soname: str) -> str:
    if function in SPECIAL:
        return SPECIAL[function]
    if re.search(r"String$|GetLastError$|CallbackName$", function):
        return f'const char *{function}(void) {{ return "stub: {soname} is not here"; }}'
    return f"int {function}(void) {{ return 1; }}"

"""The worker is a new interpreter and forks none: a fork of a process that has used CUDA cannot use it."""

import ast
from pathlib import Path

import vramscope

ROOM = Path(vramscope.__file__).parent
# What makes a process out of this one, or may.
MODULES = {"multiprocessing", "subprocess", "concurrent.futures.ProcessPoolExecutor", "pty"}
# These start another program, which has nothing of this process, and does not touch CUDA on its behalf.
PROGRAMS = {
    "doctor/cuda_start.py: subprocess",
    "doctor/torch_build.py: subprocess",
    "doctor/wifi_power_save.py: subprocess",
    "loading/hub.py: subprocess",
}
FUNCTIONS = {"os.fork", "os.forkpty", "os.popen", "os.system", "os.posix_spawn", "os.posix_spawnp"}


def test_nothing_in_this_package_forks():
    found = {
        f"{path.relative_to(ROOM)}: {name}"
        for path in ROOM.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in _names(node)
        if name in MODULES | FUNCTIONS
    }
    assert found == PROGRAMS


def _names(node: ast.AST) -> set[str]:
    match node:
        case ast.Import():
            return {alias.name for alias in node.names}
        case ast.ImportFrom():
            return {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
        case ast.Attribute(value=ast.Name(id=owner)):
            return {f"{owner}.{node.attr}"}
    return set()

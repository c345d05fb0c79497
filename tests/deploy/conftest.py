"""The programs that look at the deployment's files. One that is not to be had here skips what needs it, by name."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]

Program = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def program() -> Program:
    """Run a program that is installed beside Python or on the path, at the root of the repository."""

    def run(name: str, *arguments: object, **settings: object) -> subprocess.CompletedProcess[str]:
        beside = Path(sys.executable).parent / name
        found = str(beside) if beside.exists() else shutil.which(name)
        if found is None:
            pytest.skip(f"{name} is not installed (pip install '.[deploy]', or your system's package)")
        command = [found, *map(str, arguments)]
        return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, **settings)

    return run


@pytest.fixture
def clean(program: Program) -> Callable[..., str]:
    """Run a program that must succeed; returns its standard output."""

    def run(name: str, *arguments: object) -> str:
        done = program(name, *arguments)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
        return done.stdout

    return run

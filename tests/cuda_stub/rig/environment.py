"""The rig's virtual environment: vramscope, and torch's CUDA build without NVIDIA's libraries (1.4 GB, not 5.4)."""

import json
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from toolchain import MissingError, last_line, run

# The release whose allocator the recorded truth in tests/memory/golden comes from.
TORCH = "torch==2.14.1"
# What `import torch` needs beside NVIDIA's libraries.
TORCH_NEEDS = ("filelock", "fsspec", "jinja2", "networkx", "numpy", "sympy", "typing-extensions")


@dataclass(frozen=True)
class Environment:
    """The folder of a virtual environment, and what is put into it."""

    folder: Path
    repository: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        return self.folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"

    def inputs(self) -> str:
        """Return, as text, all that decides what is installed beside vramscope itself."""
        return json.dumps([sys.version, TORCH, self.requirements(), self.constraints()])

    def package_inputs(self) -> str:
        """Return, as text, all that decides how vramscope itself is installed, with the source that is compiled."""
        pyproject = self._pyproject()
        install = [pyproject["project"], pyproject["tool"]["setuptools"]]
        compiled = [source.read_text() for source in sorted((self.repository / "daemon").rglob("*.c"))]
        return json.dumps([self.inputs(), install, compiled, str(self.repository)], sort_keys=True)

    def requirements(self) -> list[str]:
        """Return every requirement but torch: pip would follow torch to gigabytes of NVIDIA's libraries."""
        pyproject = self._pyproject()
        project, builder = pyproject["project"], pyproject["build-system"]["requires"]
        wanted = [*TORCH_NEEDS, *builder, *project["dependencies"], *project["optional-dependencies"]["test"]]
        return [requirement for requirement in wanted if not _is_torch(requirement)]

    def constraints(self) -> list[str]:
        """Return the repository's pins without torch's, which is another build there."""
        lines = (self.repository / "constraints.txt").read_text().splitlines()
        return [line for line in lines if line and not line.startswith("#") and not _is_torch(line)]

    def create(self) -> None:
        """Make the environment anew; raises MissingError where this machine cannot have it."""
        try:
            run([sys.executable, "-m", "venv", "--clear", self.folder])
        except subprocess.CalledProcessError as error:
            raise MissingError("python3 cannot make virtual environments: apt-get install python3-venv") from error
        self._install_torch()
        constraints = self.folder / "constraints.txt"
        constraints.write_text("\n".join(self.constraints()) + "\n")
        self._pip("--constraint", str(constraints), *self.requirements())

    def install(self) -> None:
        """Install vramscope itself, where its source is."""
        self._pip("--no-deps", "--no-build-isolation", "--editable", str(self.repository))

    def _install_torch(self) -> None:
        how = "its CUDA build for this Python must be in pip's package index or in a folder given by PIP_FIND_LINKS"
        try:
            self._pip("--no-deps", TORCH)
        except subprocess.CalledProcessError as error:
            raise MissingError(f"pip cannot install {TORCH}: {how} ({last_line(error.stdout)})") from error
        if not (self.site_packages / "torch" / "lib" / "libtorch_cuda.so").is_file():
            raise MissingError(f"pip installed a build of {TORCH} without CUDA: {how}")

    def _pip(self, *arguments: str) -> None:
        # Byte-compiling all of torch takes longer than installing it; what is imported is compiled then.
        run([self.python, "-m", "pip", "install", "--quiet", "--no-compile", *arguments])

    def _pyproject(self) -> dict[str, Any]:
        return tomllib.loads((self.repository / "pyproject.toml").read_text())


def _is_torch(requirement: str) -> bool:
    return re.match(r"torch(?![\w-])", requirement) is not None

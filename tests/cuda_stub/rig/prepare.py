"""Makes the environment in which torch's CUDA build runs without a GPU: `python3 tests/cuda_stub/rig/prepare.py`.

The result is `.venv-cuda-stub` at the root of the repository. A second call finds nothing to do and takes no time.
Exits with 0: ready; 77: this machine cannot have it, and the one line printed says why; 1: something went wrong.
"""

import hashlib
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from environment import Environment
from libraries import Workshop
from toolchain import MissingError, find_headers, require_tools
from torch_imports import read_imports

RIG = Path(__file__).resolve().parent
REPOSITORY = RIG.parents[2]
FOLDER = REPOSITORY / ".venv-cuda-stub"
SKIPPED = 77

ACTIVATION = "cuda_stub_activation"


def main() -> int:
    """Prepare what is not up to date and say what was done."""
    try:
        require_tools()
        prepare(Environment(FOLDER, REPOSITORY))
    except MissingError as missing:
        say(f"skipped: {missing}")
        return SKIPPED
    except subprocess.CalledProcessError as error:
        say(f"{error.stdout}\nfailed: {' '.join(map(str, error.cmd))}")
        return 1
    return 0


def prepare(environment: Environment) -> None:
    """Run the stages whose inputs changed since they last succeeded."""
    own = environment.folder / "cuda-stub"
    contents = "".join(path.read_text() for path in sorted([*RIG.glob("*.py"), *RIG.glob("src/*.[ch]")]))
    stage("environment", own, environment.inputs(), environment.create)
    stage("package", own, environment.package_inputs(), environment.install)
    stage("libraries", own, environment.inputs() + contents, lambda: build(environment, own))


def stage(name: str, own: Path, inputs: str, action: Callable[[], None]) -> None:
    """Run `action` unless its stamp tells that it succeeded with these very inputs."""
    stamp = own / f"{name}.stamp"
    digest = hashlib.sha256(inputs.encode()).hexdigest()
    if stamp.is_file() and stamp.read_text() == digest:
        return
    stamp.unlink(missing_ok=True)
    started = time.monotonic()
    action()
    own.mkdir(exist_ok=True)
    stamp.write_text(digest)
    say(f"{name}: made in {time.monotonic() - started:.0f} s")


def build(environment: Environment, own: Path) -> None:
    """Build the libraries, and install what puts them into the environment's interpreters."""
    headers = find_headers(own / "headers", environment.python)
    shutil.rmtree(own / "lib", ignore_errors=True)
    workshop = Workshop(RIG / "src", headers, own / "build", own / "lib")
    workshop.build(read_imports(environment.site_packages / "torch" / "lib"))
    shutil.copy(RIG / "activation.py", environment.site_packages / f"{ACTIVATION}.py")
    hook = environment.site_packages / f"{ACTIVATION}.pth"
    hook.write_text(f"import {ACTIVATION}; {ACTIVATION}.activate_if_asked()\n")


def say(line: str) -> None:
    """Print one line at once, also into a pipe."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())

from importlib.metadata import version

import pytest
from tests.doctor.conftest import GPU, MODULE
from tests.memory.trees import write

from vramscope.devices.cards import Versions
from vramscope.doctor._frame import State
from vramscope.doctor.torch_build import CHECK, Build, _import_build, judge, read_build
from vramscope.settings import DeviceMode

FILE = """from typing import Optional
__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']
__version__ = '2.13.0+cu126'
debug = False
cuda: Optional[str] = '12.6'
hip: Optional[str] = None
"""


def test_the_build_is_read_from_the_package_s_own_file(tmp_path):
    assert read_build(write(tmp_path, {"version.py": FILE})) == Build(version="2.13.0+cu126", cuda="12.6")


def test_a_build_without_cuda_says_none(tmp_path):
    text = FILE.replace("'12.6'", "None")
    assert read_build(write(tmp_path, {"version.py": text})) == Build(version="2.13.0+cu126", cuda="")


@pytest.mark.parametrize("files", [{}, {"version.py": "from somewhere import *"}])
def test_a_file_that_says_nothing_is_no_answer(tmp_path, files):
    assert read_build(write(tmp_path, files)) is None


def test_the_torch_of_this_environment_is_found_without_importing_it(machine):
    found = CHECK.look(machine())
    assert found.state in {State.OK, State.NOTE}
    assert found.found.startswith("torch 2.")


@pytest.mark.parametrize(
    ("cuda", "driver", "state"),
    [
        ("12.6", 12040, State.OK),  # minor versions are compatible
        ("12.6", 13000, State.OK),
        ("13.0", 12090, State.WARNING),
        ("12.6", 11040, State.WARNING),
        ("12.6", None, State.OK),
    ],
)
def test_a_driver_runs_builds_of_its_own_major_version_and_older(machine, cuda, driver, state):
    here = machine(MODULE, device_mode=DeviceMode.CUDA)
    found = judge(here, Build(version="2.13.0", cuda=cuda), Versions(cuda=driver))
    assert found.state is state
    if state is State.WARNING:
        assert f"and the driver supports CUDA up to {driver // 1000}.{driver % 1000 // 10}" in found.found


def test_a_build_without_cuda_matters_only_beside_a_gpu(machine):
    build = Build(version="2.13.0+cpu", cuda="")
    assert judge(machine(), build, Versions()).state is State.OK
    assert judge(machine(GPU), build, Versions()).state is State.WARNING


def test_a_torch_that_does_not_say_is_asked_in_a_process_of_its_own():
    assert _import_build().version == version("torch")

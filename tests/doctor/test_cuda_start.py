import pytest
import torch
from tests.doctor.conftest import MODULE

from vramscope.doctor._frame import State
from vramscope.doctor.cuda_start import CHECK, judge
from vramscope.settings import DeviceMode


@pytest.mark.parametrize("mode", [DeviceMode.AUTO, DeviceMode.SIMULATED])
def test_torch_is_not_asked_where_no_gpu_is_wanted_or_there(machine, mode):
    found = CHECK.look(machine(device_mode=mode))
    assert found.state is State.NOTE
    assert found.found.startswith("not asked")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_run_that_insists_is_stopped_where_torch_sees_none(machine):
    found = CHECK.look(machine(MODULE, device_mode=DeviceMode.CUDA))
    assert (found.state, found.found) == (State.PROBLEM, "torch sees no CUDA device")


def test_what_torch_says_is_the_reason(machine):
    found = judge(machine(), 0, ["CUDA initialization: the driver is too old"])
    assert (found.state, found.found) == (
        State.WARNING,
        "torch sees no CUDA device: CUDA initialization: the driver is too old",
    )
    assert judge(machine(), 1, []).found == "torch sees 1 CUDA device"

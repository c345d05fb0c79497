"""The choice on a build of torch without CUDA, which is what most machines that run these tests have."""

import pytest
import torch

from vramscope.devices.choice import choose_devices, cuda_obstacle
from vramscope.errors import ExitCode, UsageError
from vramscope.settings import DeviceMode, SimulationSettings

GIB = 1 << 30
SIMULATION = SimulationSettings(
    capacity_bytes={"cuda:0": 8 * GIB, "cuda:1": 24 * GIB}, context_bytes=100, other_bytes=1000
)
WITHOUT_CUDA = f"torch {torch.__version__} is built without CUDA"

needs_cpu_build = pytest.mark.skipif(torch.version.cuda is not None, reason="this torch is built with CUDA")


@needs_cpu_build
def test_the_obstacle_is_named():
    assert cuda_obstacle() == WITHOUT_CUDA


@needs_cpu_build
def test_auto_simulates_where_torch_has_no_cuda_and_says_why():
    backend, reason, devices = choose_devices(DeviceMode.AUTO, SIMULATION)
    assert (backend, reason) == ("simulated", WITHOUT_CUDA)
    assert list(devices) == ["cuda:0", "cuda:1"]


@needs_cpu_build
def test_cuda_that_cannot_be_had_is_refused_with_the_reason():
    with pytest.raises(UsageError, match=r"--device cuda: .* is built without CUDA .*--device simulated") as caught:
        choose_devices(DeviceMode.CUDA, SIMULATION)
    assert caught.value.exit_code is ExitCode.USAGE


def test_simulated_is_simulated_because_it_was_asked_for():
    backend, reason, _ = choose_devices(DeviceMode.SIMULATED, SIMULATION)
    assert (backend, reason) == ("simulated", "asked for on the command line")


def test_simulated_devices_are_made_as_the_settings_say():
    _, _, devices = choose_devices(DeviceMode.SIMULATED, SIMULATION)
    assert [(name, device.name, device.facts().total_bytes) for name, device in devices.items()] == [
        ("cuda:0", "cuda:0", 8 * GIB),
        ("cuda:1", "cuda:1", 24 * GIB),
    ]
    for device in devices.values():
        device.open()
        assert device.snapshot().driver.used_bytes == 1100
        assert device.snapshot().driver.process_used_bytes == 100


def test_choosing_opens_nothing():
    _, _, devices = choose_devices(DeviceMode.AUTO, SIMULATION)
    assert not any(device.is_open for device in devices.values())

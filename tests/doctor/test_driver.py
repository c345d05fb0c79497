from tests.doctor.conftest import GPU, MODULE, OTHER

from vramscope.doctor._frame import State
from vramscope.doctor.device_nodes import CHECK as NODES
from vramscope.doctor.driver import CHECK
from vramscope.settings import DeviceMode


def test_a_loaded_module_tells_its_version(machine):
    found = CHECK.look(machine(MODULE, GPU))
    assert (found.state, found.found) == (State.OK, "kernel module 550.54.14")


def test_the_proprietary_module_spells_its_version_otherwise(machine):
    text = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023"
    assert CHECK.look(machine({"proc/driver/nvidia/version": text})).found == "kernel module 535.104.05"


def test_a_gpu_without_a_module_is_a_warning_but_for_a_simulated_run(machine):
    states = {mode: CHECK.look(machine(GPU, OTHER, device_mode=mode)).state for mode in DeviceMode}
    assert states == {
        DeviceMode.AUTO: State.WARNING,
        DeviceMode.CUDA: State.WARNING,
        DeviceMode.SIMULATED: State.NOTE,
    }
    assert CHECK.look(machine(GPU)).found == "1 NVIDIA GPU on the PCI bus, and no kernel module for it"


def test_no_gpu_at_all_is_no_fault(machine):
    """A container may not see the bus: whether there is a GPU for a run, only torch knows."""
    states = {CHECK.look(machine(OTHER, device_mode=mode)).state for mode in DeviceMode}
    assert states == {State.NOTE}


def test_wsl_has_no_module_of_its_own(machine):
    assert "WSL" in CHECK.look(machine({"dev/dxg": ""})).found


def test_a_device_file_that_is_missing_is_named(machine):
    found = NODES.look(machine(MODULE, {"dev/nvidiactl": "", "dev/nvidia0": ""}))
    assert (found.state, found.found) == (State.WARNING, "not there: /dev/nvidia-uvm")
    found = NODES.look(machine(MODULE, {"dev/nvidia-uvm": ""}))
    assert (found.state, found.found) == (State.OK, "/dev/nvidiactl, /dev/nvidia-uvm, /dev/nvidia0")


def test_without_a_driver_no_device_file_is_missed(machine):
    assert NODES.look(machine()).state is State.NOTE

"""The NVIDIA kernel module: whether there is a GPU for it, whether it is loaded, and its version."""

from vramscope.doctor._frame import Check, Finding, Machine, State
from vramscope.doctor._hardware import gpus, kernel_module


def _look(machine: Machine) -> Finding:
    version = kernel_module(machine)
    if version is not None:
        return Finding(state=State.OK, found=f"kernel module {version or 'of an unknown version'}")
    if (machine.dev / "dxg").exists():
        found = "WSL: Windows' driver stands behind /dev/dxg, and tells no process's own use"
        return Finding(state=State.NOTE, found=found)
    if count := gpus(machine):
        found = f"{count} NVIDIA {'GPU' if count == 1 else 'GPUs'} on the PCI bus, and no kernel module for it"
        return machine.without_gpu(found, "install NVIDIA's driver, or load it: `sudo modprobe nvidia`")
    return Finding(state=State.NOTE, found="no NVIDIA GPU on the PCI bus", advice="runs use a simulated device")


CHECK = Check(title="driver", look=_look)

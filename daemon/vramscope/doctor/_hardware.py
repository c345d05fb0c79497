"""What the kernel lists of NVIDIA's devices, whether or not a driver answers for them."""

import re

from vramscope.doctor._frame import Machine

VENDOR = "0x10de"
# PCI classes: VGA controller, 3D controller, other display controller.
_DISPLAYS = ("0x0300", "0x0302", "0x0380")
_MODULE = re.compile(r"Kernel Module(?:\s+for\s+\S+)?\s+(\d[\d.]*)")


def gpus(machine: Machine) -> int:
    """How many of NVIDIA's GPUs are on the PCI bus."""
    devices = machine.sys / "bus/pci/devices"
    return sum(
        machine.read(str(device / "vendor")) == VENDOR
        and (machine.read(str(device / "class")) or "").startswith(_DISPLAYS)
        for device in (devices.iterdir() if devices.is_dir() else ())
    )


def kernel_module(machine: Machine) -> str | None:
    """The version of the kernel module; empty where it has none that can be read, None where none is loaded."""
    text = machine.read("proc/driver/nvidia/version")
    if text is None:
        return None
    match = _MODULE.search(text)
    return match[1] if match else ""

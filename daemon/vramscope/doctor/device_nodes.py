"""The device files of a loaded driver. CUDA fails without each of them, mostly with "unknown error"."""

import os

from vramscope.doctor._frame import Check, Finding, Machine, State
from vramscope.doctor._hardware import kernel_module

_NEEDED = ("nvidiactl", "nvidia-uvm")


def _look(machine: Machine) -> Finding:
    if kernel_module(machine) is None:
        return Finding(state=State.NOTE, found="no NVIDIA driver, so none of its device files")
    numbered = sorted(path for path in machine.dev.glob("nvidia[0-9]*") if path.name[6:].isdecimal())
    missing = [name for name in _NEEDED if not (machine.dev / name).exists()]
    if not numbered:
        missing.append("nvidia0")
    if missing:
        advice = "start the container with its GPUs (`--gpus all`), or run `sudo nvidia-modprobe -u -c 0` on the host"
        return machine.without_gpu(f"not there: {', '.join(f'/dev/{name}' for name in missing)}", advice)
    files = [machine.dev / name for name in _NEEDED] + numbered
    closed = [f"/dev/{path.name}" for path in files if not os.access(path, os.R_OK | os.W_OK)]
    if closed:
        advice = "add this user to the group that owns them, or fix the device permissions of the container"
        return machine.without_gpu(f"not open to this user: {', '.join(closed)}", advice)
    return Finding(state=State.OK, found=", ".join(f"/dev/{path.name}" for path in files))


CHECK = Check(title="device files", look=_look)

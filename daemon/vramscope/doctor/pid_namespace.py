"""The namespace of process numbers: in one of its own, this process is not found in the driver's list by its number.

The kernel gives the first namespace a fixed inode (PROC_PID_INIT_INO, include/linux/proc_ns.h).
"""

from vramscope.devices.own import HOST_PROC_VARIABLE, process_names
from vramscope.doctor._frame import Check, Finding, Machine, State

INITIAL = "pid:[4026531836]"


def _look(machine: Machine) -> Finding:
    try:
        namespace = str((machine.proc / "self/ns/pid").readlink())
    except OSError as error:
        return Finding(state=State.NOTE, found=f"which one this is cannot be told: {error.strerror}")
    if namespace == INITIAL:
        return Finding(state=State.OK, found="the host's: the driver's list has our own numbers")
    host_proc = process_names(machine.environment).host_proc
    if (host_proc / "1/status").is_file():
        return Finding(state=State.OK, found=f"one of its own, and the host's processes are seen at {host_proc}")
    found = "one of its own: the driver's figure for our own use is not found, and is measured by difference instead"
    advice = f"`--pid=host`, or mount the host's /proc at {host_proc} ({HOST_PROC_VARIABLE})"
    return Finding(state=State.NOTE, found=found, advice=advice)


CHECK = Check(title="process numbers", look=_look)

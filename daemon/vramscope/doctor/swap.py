"""Swap. No load counts on it, and weights that were swapped out make a later move wait for the disk."""

from vramscope.doctor._frame import Check, Finding, Machine, State
from vramscope.doctor._memory import meminfo
from vramscope.units import format_bytes

# A share of the swap that says that memory was short, rather than that something slept for long.
MUCH = 0.25


def _look(machine: Machine) -> Finding:
    memory = meminfo(machine)
    total, free = memory.get("SwapTotal"), memory.get("SwapFree")
    if total is None or free is None:
        return Finding(state=State.NOTE, found="the kernel does not say whether there is swap")
    if total == 0:
        return Finding(state=State.OK, found="none")
    used = total - free
    found = f"{format_bytes(used)} of {format_bytes(total)} used"
    if used > total * MUCH:
        advice = "memory was short: what is measured may include the disk; end what takes the RAM, or `sudo swapoff -a`"
        return Finding(state=State.WARNING, found=found, advice=advice)
    return Finding(state=State.OK, found=found)


CHECK = Check(title="swap", look=_look)

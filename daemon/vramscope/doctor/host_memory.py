"""RAM that a load may use: the least that the host and the control groups around this process leave."""

from vramscope.doctor._frame import Check, Finding, Machine, State
from vramscope.memory.host import read_host
from vramscope.units import format_bytes

# The worker alone takes about 0.6 GiB once torch and transformers are imported.
LITTLE_BYTES = 2 << 30


def _look(machine: Machine) -> Finding:
    host = read_host(machine.sys / "fs/cgroup", machine.proc)
    limit = "an unknown limit" if host.limit_bytes is None else f"a limit of {format_bytes(host.limit_bytes)}"
    if host.available_bytes is None:
        found = f"what is left of {limit} is not known, so a load that does not fit is not refused"
        return Finding(state=State.WARNING, found=found, advice="mount /proc and /sys/fs/cgroup as they are")
    found = f"{format_bytes(host.available_bytes)} available, of {limit}"
    if host.available_bytes < LITTLE_BYTES:
        advice = "raise the memory limit of the container or unit, or end what takes the RAM"
        return Finding(state=State.WARNING, found=found, advice=advice)
    return Finding(state=State.OK, found=found)


CHECK = Check(title="host memory", look=_look)

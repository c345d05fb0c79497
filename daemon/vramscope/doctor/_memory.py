"""Lines of /proc/meminfo."""

from vramscope.doctor._frame import Machine


def meminfo(machine: Machine) -> dict[str, int]:
    """Bytes by name, such as SwapTotal; empty where the file is not there."""
    found: dict[str, int] = {}
    for line in (machine.read("proc/meminfo") or "").splitlines():
        match line.split():
            case [name, amount, "kB"] if amount.isdecimal():
                found[name.rstrip(":")] = int(amount) * 1024
    return found

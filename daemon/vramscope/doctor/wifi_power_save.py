"""Wi-Fi power save on the interface of the default route.

The adapter sleeps between packets and drops SSH sessions, scrapes and downloads, on laptops and lab boxes above all.
"""

import re
import shutil
import subprocess

from vramscope.doctor._frame import Check, Finding, Machine, State

ANSWER_SECONDS = 3.0
_UP = 0x1
_OFF = (
    "`sudo iw dev {0} set power_save off` until the next start; for good, wifi.powersave=2 under [connection] in "
    "/etc/NetworkManager/conf.d/"
)


def _look(machine: Machine) -> Finding:
    interface = default_interface(machine)
    if interface is None:
        return Finding(state=State.NOTE, found="there is no default route")
    place = machine.sys / "class/net" / interface
    if not (place / "wireless").exists() and not (place / "phy80211").exists():
        return Finding(state=State.OK, found=f"the default route goes over {interface}, which is not wireless")
    told = _power_save(machine, interface)
    if told is None:
        found = f"the default route goes over {interface}, and whether its adapter sleeps cannot be told"
        return Finding(state=State.NOTE, found=found, advice=f"install `iw`; then {_OFF.format(interface)}")
    if told == "on":
        found = f"on, and the default route goes over {interface}: connections may drop"
        return Finding(state=State.WARNING, found=found, advice=_OFF.format(interface))
    return Finding(state=State.OK, found=f"off on {interface}")


def default_interface(machine: Machine) -> str | None:
    """The interface of the default route with the lowest metric, IPv4 before IPv6; None where there is none."""
    routes = [_route4(line.split()) for line in (machine.read("proc/net/route") or "").splitlines()[1:]]
    if not any(routes):
        routes = [_route6(line.split()) for line in (machine.read("proc/net/ipv6_route") or "").splitlines()]
    return min((route for route in routes if route), default=(0, None))[1]


def _route4(columns: list[str]) -> tuple[int, str] | None:
    """Metric and interface of a default route in /proc/net/route, which has hexadecimal flags and decimal metrics."""
    match columns:
        case [interface, "00000000", _, flags, _, _, metric, "00000000", *_] if int(flags, 16) & _UP:
            return int(metric), interface
    return None


def _route6(columns: list[str]) -> tuple[int, str] | None:
    """The same for /proc/net/ipv6_route, which is all hexadecimal; lo has a default route that rejects."""
    match columns:
        case [target, "00", _, _, _, metric, _, _, flags, interface] if interface != "lo" and int(flags, 16) & _UP:
            return (int(metric, 16), interface) if not target.strip("0") else None
    return None


def _power_save(machine: Machine, interface: str) -> str | None:
    """`on` or `off` as iw tells it; None where it does not."""
    program = shutil.which("iw", path=machine.environment.get("PATH"))
    if program is None:
        return None
    command = [program, "dev", interface, "get", "power_save"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False)  # noqa: S603 - no shell
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"Power save:\s*(on|off)", told.stdout)
    return match[1] if match else None


CHECK = Check(title="Wi-Fi power save", look=_look)

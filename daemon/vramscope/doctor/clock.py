"""The clock: a wrong one breaks TLS, and Prometheus refuses or misplaces what it scrapes.

A clock that is older than the files of this program is wrong. Whether the kernel's clock is kept by a time server is
what adjtimex(2) answers, which changes nothing when it is only asked.
"""

import ctypes
import os
from datetime import UTC, datetime
from pathlib import Path

from vramscope.doctor._frame import Check, Finding, Machine, State

DAY_SECONDS = 86_400
LATEST = datetime(2100, 1, 1, tzinfo=UTC).timestamp()
UNSYNCHRONIZED = 5  # TIME_ERROR of <sys/timex.h>
# struct timex takes 208 bytes on 64-bit Linux; all zeros ask and set nothing.
TIMEX_BYTES = 512


def _look(machine: Machine) -> Finding:
    return judge(machine.clock(), Path(__file__).stat().st_mtime, _kernel_state())


def judge(now: float, installed: float, kernel: int | None) -> Finding:
    """What a time means beside that of our own files; `kernel` is adjtimex's answer."""
    if not installed - DAY_SECONDS <= now <= LATEST:
        found = f"it says {_shown(now)}, and this program's files are of {_shown(installed)}"
        return Finding(state=State.WARNING, found=found, advice="set the clock: `sudo timedatectl set-ntp true`")
    if kernel == UNSYNCHRONIZED:
        found = f"{_shown(now)}, and the kernel calls its clock not synchronized"
        advice = "run a time service (chrony, systemd-timesyncd): `timedatectl status`"
        return Finding(state=State.NOTE, found=found, advice=advice)
    return Finding(state=State.OK, found=_shown(now))


def _kernel_state() -> int | None:
    """What adjtimex(2) returns; None where it cannot be asked."""
    try:
        library = ctypes.CDLL(None, use_errno=True)
        answer = int(library.adjtimex(ctypes.create_string_buffer(TIMEX_BYTES)))
    except (OSError, AttributeError):
        return None
    return answer if answer >= 0 and os.name == "posix" else None


def _shown(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


CHECK = Check(title="clock", look=_look)

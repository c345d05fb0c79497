"""Makes sense of the numbers that a driver tells: what cannot be is not known. All sizes are bytes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from vramscope.memory.snapshot import DriverMemory

NOT_SUPPORTED = "not supported"
# More than any device has, so that garbage is not taken for a size where the device's total is not known.
MOST_BYTES = 1 << 44


@dataclass(frozen=True, kw_only=True)
class Told:
    """What the driver told about a device's memory; `reason` says what it did not tell, and why."""

    memory: DriverMemory
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class ProcessesTold:
    """Process to the bytes that it uses, None where it is listed without; `reason` says why there is no list."""

    used_bytes: Mapping[int, int | None]
    reason: str = ""


def memory_told(total: int, used: int, free: int, reserved: int | None) -> Told:
    """What these numbers say of a device; `reserved` is None where the driver counts it as used.

    Zeros are how a driver tells that the device has no memory of its own, though it reports success
    (https://github.com/Syllo/nvtop/issues/411).
    """
    if total == 0 or total > MOST_BYTES:
        return Told(
            memory=DriverMemory(),
            reason=f"{NOT_SUPPORTED}: the driver reports a device of {total} bytes, as where GPU and host share memory",
        )
    if used + (reserved or 0) > total or free > total:
        return Told(
            memory=DriverMemory(total_bytes=total),
            reason="the driver reports more memory used or free than the device has",  # no numbers: they change
        )
    return Told(memory=DriverMemory(total_bytes=total, used_bytes=used, free_bytes=free, reserved_bytes=reserved))


def processes_told(entries: Iterable[tuple[int, int | None]], limit_bytes: int | None) -> ProcessesTold:
    """Each process once, with the largest size that any list has for it; sizes above `limit_bytes` are none.

    A driver may list a process with 0 bytes that it does not know, as from another PID namespace
    (https://github.com/NVIDIA/open-gpu-kernel-modules/pull/614); one that is listed uses something.
    """
    used: dict[int, int | None] = {}
    for pid, nbytes in entries:
        known = nbytes if nbytes and nbytes <= (limit_bytes or MOST_BYTES) else None
        if pid > 0:
            used[pid] = max((each for each in (used.get(pid), known) if each), default=None)
    return ProcessesTold(used_bytes=used)

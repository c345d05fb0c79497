"""The size of /dev/shm. vramscope needs none, but NCCL and PyTorch's DataLoader beside it do; Docker gives 64 MiB."""

import os

from vramscope.doctor._frame import Check, Finding, Machine, State
from vramscope.units import format_bytes

LITTLE_BYTES = 1 << 30


def _look(machine: Machine) -> Finding:
    place = machine.dev / "shm"
    try:
        told = os.statvfs(place)
    except OSError as error:
        found = f"{place}: {error.strerror}"
        return Finding(state=State.NOTE, found=found, advice="programs that share tensors between processes need it")
    return judge(told.f_blocks * told.f_frsize)


def judge(size_bytes: int) -> Finding:
    """What a size means."""
    found = f"{format_bytes(size_bytes)} in all"
    if size_bytes < LITTLE_BYTES:
        return Finding(
            state=State.NOTE, found=found, advice="for NCCL or a DataLoader in this container: `--shm-size=1g`"
        )
    return Finding(state=State.OK, found=found)


CHECK = Check(title="shared memory", look=_look)

"""The limits of this process (`ulimit`): open files, and locked memory, which page-locked buffers may count against."""

import resource

from vramscope.doctor._frame import Check, Finding, Machine, State
from vramscope.units import format_bytes, format_count

# A run of the smallest plan starts with 20 and fails with 16; each scraper takes one more.
FEWEST_FILES = 24
FEW_FILES = 1024
LITTLE_LOCKED_BYTES = 64 << 20


def _look(_machine: Machine) -> Finding:
    files, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return judge(files, hard, locked)


def judge(files: int, hard: int, locked: int) -> Finding:
    """What the limits mean; resource.RLIM_INFINITY is none."""
    infinite = resource.RLIM_INFINITY
    found = f"{'any number of' if files == infinite else format_count(files)} open files, "
    found += f"{'any amount' if locked == infinite else format_bytes(locked)} of locked memory"
    if files != infinite and files < FEW_FILES:
        state = State.PROBLEM if files < FEWEST_FILES else State.WARNING
        wanted = FEW_FILES if hard == infinite or hard >= FEW_FILES else hard
        return Finding(
            state=state, found=found, advice=f"`ulimit -n {wanted}`, LimitNOFILE={FEW_FILES * 4} in a systemd unit"
        )
    if locked != infinite and locked < LITTLE_LOCKED_BYTES:
        advice = (
            "for RDMA or io_uring beside it: `ulimit -l unlimited`, LimitMEMLOCK=infinity; CUDA's own is not counted"
        )
        return Finding(state=State.NOTE, found=found, advice=advice)
    return Finding(state=State.OK, found=found)


CHECK = Check(title="process limits", look=_look)

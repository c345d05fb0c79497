"""The states of one worker process, and the ways in which it can end."""

from dataclasses import dataclass
from enum import Enum, StrEnum


class WorkerPhase(Enum):
    """The life of one worker process."""

    STARTING = "starting"
    READY = "ready"
    STOPPING = "stopping"
    GONE = "gone"


# Which phase may follow which; GONE is reachable from everywhere, and final.
NEXT = {
    WorkerPhase.STARTING: {WorkerPhase.READY, WorkerPhase.STOPPING, WorkerPhase.GONE},
    WorkerPhase.READY: {WorkerPhase.STOPPING, WorkerPhase.GONE},
    WorkerPhase.STOPPING: {WorkerPhase.GONE},
    WorkerPhase.GONE: set(),
}


class ExitReason(StrEnum):
    """Why a worker ended, as a bounded word for metrics."""

    EXIT = "exit"
    SIGNAL = "signal"
    OOM_KILLED = "oom_killed"
    HUNG = "hung"
    UNSTOPPABLE = "unstoppable"
    UNKILLABLE = "unkillable"
    PROTOCOL = "protocol"
    STICKY_ERROR = "sticky_error"


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a worker ended; `detail` is a clause for people."""

    reason: ExitReason
    detail: str

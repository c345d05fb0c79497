"""Downloads a model from the Hugging Face hub, in a process of its own (see hub_process) that a cancelled step kills.

This process stays offline: no library in it may use the network, and nothing of a download stays in its memory.
"""

import json
import os
import select
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramscope.errors import SourceError, StepCancelledError
from vramscope.loading.monitor import Monitor

POLL_MILLISECONDS = 100
READ_BYTES = 1 << 16
# They bind this process, not the one that was asked to download.
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


@dataclass(frozen=True, kw_only=True)
class Downloaded:
    """What a download brought. `nbytes` are those of all files, `came_bytes` those that were missing."""

    commit: str
    files: int
    nbytes: int
    came_bytes: int
    seconds: float


def download(hub_id: str, revision: str, hub_cache: Path, monitor: Monitor) -> Downloaded:
    """Bring what a load of the model reads into the hub cache; what is there already does not come again.

    Reports the phases `download` and `verify`. Raises SourceError with one sentence and StepCancelledError; what has
    come stays, and the next download goes on behind it.
    """
    request = json.dumps({"hub_id": hub_id, "revision": revision, "hub_cache": str(hub_cache)})
    process = subprocess.Popen(  # noqa: S603 - our own program; the request is data
        [sys.executable, "-P", "-m", "vramscope.loading.hub_process", request],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=_environment(os.environ),
    )
    failures: deque[str] = deque(maxlen=1)
    with process:
        try:
            return _follow(process, hub_id, monitor, failures)
        except StepCancelledError as error:
            error.trouble = f"last failure: {failures[-1]}" if failures else ""
            raise
        finally:
            process.kill()


def _environment(environment: Mapping[str, str]) -> dict[str, str]:
    kept = {name: value for name, value in environment.items() if name not in _OFFLINE}
    return {**kept, "HF_HUB_DISABLE_PROGRESS_BARS": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}


def _follow(process: "subprocess.Popen[bytes]", hub_id: str, monitor: Monitor, failures: deque[str]) -> Downloaded:
    """Pass on what the process says, until it has a result; `failures` gets why it has to try again."""
    phase, came, seconds, began = "download", 0, 0.0, time.perf_counter()
    monitor.enter_phase(phase)
    for told in _lines(process, monitor):
        match told:
            case {"at": str(at), "done": int(done), "total": int(total)}:
                if at != phase:
                    monitor.enter_phase(at)
                    phase = at
                monitor.progress(done, total)
            case {"failure": str(failure)}:
                failures.append(failure)
            case {"phase": str(ended), "seconds": float(took), "bytes": int(nbytes)}:
                if ended == "download":
                    came, seconds = nbytes, took
                now = time.perf_counter()  # the start of the process is a part of its first phase
                if nbytes or ended == "download":
                    monitor.record_phase(ended, now - began, nbytes)
                began = now
            case {"result": {"commit": str(commit), "files": int(files), "bytes": int(nbytes)}}:
                return Downloaded(commit=commit, files=files, nbytes=nbytes, came_bytes=came, seconds=seconds)
            case {"error": str(error), "hint": str(hint)}:
                raise SourceError(error, hint=hint)
    raise SourceError(f"{hub_id}: the process that downloads ended with exit code {process.wait()}")


def _lines(process: "subprocess.Popen[bytes]", monitor: Monitor) -> Iterator[Mapping[str, Any]]:
    """Each line as it comes; meanwhile the step may be cancelled. Ends with the process's output."""
    if process.stdout is None:
        return
    waiting, descriptor, poll = b"", process.stdout.fileno(), select.poll()
    poll.register(descriptor, select.POLLIN)
    while True:
        monitor.check_cancelled()
        if not poll.poll(POLL_MILLISECONDS):
            continue
        if not (got := os.read(descriptor, READ_BYTES)):
            return
        *lines, waiting = (waiting + got).split(b"\n")
        yield from (json.loads(line) for line in lines)

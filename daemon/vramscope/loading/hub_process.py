"""The process that downloads: it alone may use the network, and is killed when its step is cancelled.

Its first argument is a request; on standard output it writes one JSON object a line: how far it is, what a phase took,
why it has to try again, and at the end a result or an error with a hint. It ends when its input ends, so it never
outlives the worker.
"""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from huggingface_hub import constants
from huggingface_hub.errors import (
    DisabledRepoError,
    GatedRepoError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from vramscope.errors import SourceError, reason_of
from vramscope.loading.hub_transfer import RequestFailure, Transfer, is_full
from vramscope.settings import hub_address

TICK_SECONDS = 0.2
_LOST = "look at the network, the proxy (HTTPS_PROXY) and HF_ENDPOINT; what has come stays, and the next fetch goes on"
_TOKEN = "set HF_TOKEN to a token of an account that may read it"  # noqa: S105 - a sentence


def main() -> None:
    """Serve one request."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints goes to the log
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)  # its warnings hold addresses that are signed
    threading.Thread(target=_end_with_input, name="input", daemon=True).start()
    request = json.loads(sys.argv[1])
    transfer = Transfer(request["hub_id"], request["revision"], Path(request["hub_cache"]))
    teller = _Teller(transfer, out)
    transfer.on_failure = lambda error: teller.tell(failure=explain(error, transfer)[0])
    try:
        teller.tell(result=_work(transfer, teller))
    except SourceError as error:
        teller.tell(error=error.message, hint=error.hint)
    except Exception as error:  # noqa: BLE001 - the border of one download: every failure is one sentence
        message, hint = explain(error, transfer)
        teller.tell(error=message, hint=hint)


def _work(transfer: Transfer, teller: "_Teller") -> dict[str, Any]:
    """Download, then check; each is timed as a phase."""
    began = time.perf_counter()
    listing = transfer.list()
    with teller.ticking(), transfer.locked():
        files = transfer.bring(listing)
        teller.tell(phase="download", seconds=time.perf_counter() - began, bytes=transfer.came_bytes)
        began = time.perf_counter()
        transfer.settle(listing, files)
        teller.tell(phase="verify", seconds=time.perf_counter() - began, bytes=transfer.progress.settled_bytes)
    return {"commit": listing.commit, "files": len(files), "bytes": sum(file.nbytes for file in files)}


class _Teller:
    """Writes lines, from the thread that works and from the one that says how far it is."""

    def __init__(self, transfer: Transfer, out: IO[str]) -> None:
        self._transfer = transfer
        self._out = out
        self._lock = threading.Lock()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="progress", daemon=True)

    def tell(self, **values: object) -> None:
        with self._lock:
            self._out.write(json.dumps(values) + "\n")
            self._out.flush()

    @contextmanager
    def ticking(self) -> Iterator[None]:
        """Say how far it is, as long as the block lasts."""
        self._thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._thread.join()

    def _tick(self) -> None:
        while not self._stopped.wait(TICK_SECONDS):
            now = self._transfer.progress
            if now.phase:
                self.tell(at=now.phase, done=min(now.done_bytes, now.total_bytes), total=now.total_bytes)


def explain(error: Exception, transfer: Transfer) -> tuple[str, str]:
    """What went wrong and what to do, in one sentence each, without an address or a token. Most special first."""
    hub_id, cache = transfer.hub_id, transfer.hub_cache
    message, hint = f"the download failed: {type(error).__name__}: {reason_of(error)}", ""
    match error:
        case GatedRepoError():
            message = "its owner wants terms to be accepted first"
            hint = f"accept them at {hub_address(constants.ENDPOINT)}/{hub_id}, and {_TOKEN}"
        case DisabledRepoError():
            message, hint = "the hub has disabled it", "take another model"
        case RepositoryNotFoundError():
            message, hint = "not on the hub, or private", f"look at the name, or {_TOKEN}"
        case RevisionNotFoundError():
            message, hint = f"the hub has no revision {transfer.revision!r}", "name a branch, a tag or a whole commit"
        case HfHubHTTPError():
            message, hint = _refusal(error.response.status_code)
        case _ if isinstance(error, RequestFailure):
            message, hint = f"no connection to {hub_address(constants.ENDPOINT)}: {type(error).__name__}", _LOST
        case OSError() if is_full(error):
            message, hint = f"{cache} is full", "make room, or set HF_HUB_CACHE; what has come stays"
        case OSError() if error.errno is None:
            message, hint = "the hub sends another number of bytes than it names", _LOST
        case OSError():
            message, hint = f"{cache} cannot be written: {error.strerror}", "set HF_HUB_CACHE to a place of your own"
    return f"{hub_id}: {message}", hint


def _refusal(status: int) -> tuple[str, str]:
    if status in {401, 403}:
        return f"the hub refuses the token, or its rights (HTTP {status})", _TOKEN
    if status == 404:  # noqa: PLR2004 - HTTP's
        return "the hub does not have a file that it lists (HTTP 404)", "try again, or name another revision"
    if status == 429:  # noqa: PLR2004 - as above
        return "the hub wants fewer requests (HTTP 429)", "wait some minutes; a token has a higher limit"
    return f"the hub answers with HTTP {status}", _LOST


def _end_with_input() -> None:
    with suppress(OSError, ValueError):
        sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    main()

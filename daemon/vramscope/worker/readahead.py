"""Has the files of the first model read into the page cache while the worker imports torch, which takes seconds."""

import os
import threading
from contextlib import suppress
from pathlib import Path

from vramscope.anatomy.source import resolve
from vramscope.errors import VramscopeError
from vramscope.memory.host import read_host
from vramscope.settings import WorkerSettings

# The kernel is asked for this much at a time, so that a load that begins meanwhile need not wait for the rest.
PART_BYTES = 64 << 20
# Of the memory that is left; the model needs its place, too.
LARGEST_SHARE = 0.5


class ReadAhead:
    """A thread that asks for a model's files, and ends when they are read, when told, or where nothing can be read."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="read-ahead", daemon=True)

    def start(self) -> None:
        if self._settings.first_source:
            self._thread.start()

    def stop(self) -> None:
        """Ask for no more; what was asked for comes."""
        self._stopped.set()

    def wait(self, seconds: float) -> bool:
        """Whether it is over within so many seconds."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        with suppress(VramscopeError, OSError):  # the load comes to the same files, and tells what is wrong with them
            settings = self._settings
            found = resolve(
                settings.first_source, settings.cache, hub_cache=settings.hub_cache, revision=settings.first_revision
            )
            available = read_host(settings.cgroup_root, settings.proc_root).available_bytes
            if available is not None and found.file_bytes <= LARGEST_SHARE * available:
                for path in found.files:
                    self._ask_for(path)

    def _ask_for(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for start in range(0, os.fstat(descriptor).st_size, PART_BYTES):
                if self._stopped.is_set():
                    return
                os.posix_fadvise(descriptor, start, PART_BYTES, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(descriptor)

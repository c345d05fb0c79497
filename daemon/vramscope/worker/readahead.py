"""Has the first model read while the worker imports torch, which takes seconds: into its place, or the page cache."""

import os
import threading
from contextlib import suppress
from pathlib import Path

from vramscope.anatomy.config import STORED_NAMES, resolve_dtype
from vramscope.anatomy.header import is_floating
from vramscope.anatomy.source import Checkpoint, resolve, steady
from vramscope.errors import VramscopeError
from vramscope.loading.weights import StagedWeights
from vramscope.memory.host import read_host
from vramscope.settings import WorkerSettings

# The kernel is asked for this much at a time, so that a load that begins meanwhile need not wait for the rest.
PART_BYTES = 64 << 20
# Of the memory that is left; the model needs its place, too.
LARGEST_SHARE = 0.5


class ReadAhead:
    """A thread that reads a model's files, and ends when they are read, when told, or where nothing can be read.

    Where the first step of the plan loads it to RAM, they are read to where that load will have them, as far as it can
    be foreseen without torch; elsewhere the page cache has them.
    """

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._stopped = threading.Event()
        self._begun: StagedWeights | None = None
        self._thread = threading.Thread(target=self._run, name="read-ahead", daemon=True)

    def start(self) -> None:
        if self._settings.first_source:
            self._thread.start()

    def stop(self) -> None:
        """Ask for no more, and let go of what was read to its place; what the page cache was asked for comes."""
        if (begun := self.take()) is not None:
            begun.stop()

    def take(self) -> StagedWeights | None:
        """What was begun, which is the caller's from now on; nothing else is asked for."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join()
        begun, self._begun = self._begun, None
        return begun

    def wait(self, seconds: float) -> bool:
        """Whether it is over within so many seconds."""
        if self._thread.ident is not None:
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        with suppress(VramscopeError, OSError, MemoryError):  # the load finds the same, and tells what is wrong
            settings = self._settings
            found = resolve(
                steady(settings.first_source),
                settings.cache,
                hub_cache=settings.hub_cache,
                revision=settings.first_revision,
            )
            available = read_host(settings.cgroup_root, settings.proc_root).available_bytes
            if available is None or found.file_bytes > LARGEST_SHARE * available:
                return
            if settings.first_dtype and self._begin(_foreseen(found, settings.first_dtype), LARGEST_SHARE * available):
                return
            for path in found.files:
                self._ask_for(path)

    def _begin(self, staged: StagedWeights, room: float) -> bool:
        if staged.layout.arena_bytes > room or not staged.layout.needs_no_torch:
            return False
        staged.begin()
        self._begun = staged
        return True

    def _ask_for(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            for start in range(0, os.fstat(descriptor).st_size, PART_BYTES):
                if self._stopped.is_set():
                    return
                os.posix_fadvise(descriptor, start, PART_BYTES, os.POSIX_FADV_WILLNEED)
        finally:
            os.close(descriptor)


def _foreseen(found: Checkpoint, requested: str) -> StagedWeights:
    """The weights as most models are loaded: all floating-point numbers in one dtype, and the rest as it is stored."""
    dtype = STORED_NAMES[resolve_dtype(requested, found.config, found.headers)]
    return StagedWeights(found.tensors, lambda tensor: dtype if is_floating(tensor.dtype) else tensor.dtype)

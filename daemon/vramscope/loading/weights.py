"""Reads safetensors data into one arena. Peak memory is the arena plus a small buffer for each thread."""

import math
import os
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from vramscope.anatomy.header import Header, TensorEntry
from vramscope.loading.arena import Arena
from vramscope.loading.monitor import Monitor
from vramscope.loading.reader import Reader
from vramscope.loading.spans import ArenaLayout
from vramscope.loading.weightfile import Identity

PROGRESS_SECONDS = 0.1
# A disk is busy only with several requests at once.
COLD_THREADS = 4
# Takes tensors from the arena up to an offset; returns up to which one nothing of it is needed any more.
Take = Callable[[int], int]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the bytes came: `cached_bytes` of them through the page cache, the others past it."""

    nbytes: int
    cached_bytes: int

    @property
    def cached_share(self) -> float | None:
        return self.cached_bytes / self.nbytes if self.nbytes else None

    @property
    def way(self) -> str | None:
        """How most bytes came; None where there were none."""
        return None if not self.nbytes else "cached" if 2 * self.cached_bytes >= self.nbytes else "direct"


class StagedWeights:
    """Weights of a model, laid out but not read. Views of the arena may be used for anything but their contents."""

    def __init__(self, tensors: Iterable[tuple[Header, TensorEntry]], wanted: Callable[[TensorEntry], str]) -> None:
        """Lay out tensors that come in file order. Raises MemoryError."""
        placed = list(tensors)
        self.layout = ArenaLayout.of(placed, wanted)
        self.arena = Arena(self.layout.arena_bytes)
        self._identities: dict[Path, Identity] = {header.path: header.identity for header, _ in placed}

    def views(self) -> dict[str, torch.Tensor]:
        """Every tensor by name, as a view of the arena."""
        return {name: self.arena.view(place) for name, place in self.layout.places.items()}

    def fill(
        self,
        monitor: Monitor,
        *,
        threads: int = 0,
        take: Take | None = None,
        taken_bytes: int = 0,
        ring: memoryview | None = None,
    ) -> Reading:
        """Read everything. `take` is told, in this thread, up to which offset the arena is ready, and may empty it.

        It returns up to where it has done so, and is asked again at once while that is less. With a `ring` (Reader) no
        byte of the arena is touched, and its offsets are those of the ring, modulo its length.
        Reports the phases `read` and `convert`, and `copy` of `taken_bytes` where `take` is given: all three are
        measured where they happen, and the pass's wall time is split in the ratio of their sums. Raises SourceError,
        StepCancelledError.
        """
        began = time.perf_counter()
        reader = Reader(self.layout, self.arena.bytes if ring is None else ring, self._identities)
        taker = _Taker(reader, take)
        try:
            reader.open()
            _run_threads(reader, taker, self.layout.file_bytes, monitor, threads or _threads_for(reader))
        finally:
            reader.close()
        wall, work = time.perf_counter() - began, reader.work
        spent = {
            "read": (work.read_seconds, work.read_bytes),
            "convert": (work.convert_seconds, work.converted_bytes),
            "copy": (taker.seconds, taken_bytes),
        }
        busy = sum(seconds for seconds, _ in spent.values()) or 1.0
        for phase, (seconds, nbytes) in spent.items():
            if seconds or phase == "read":
                monitor.record_phase(phase, wall * seconds / busy, nbytes)
        return Reading(nbytes=work.read_bytes, cached_bytes=work.cached_bytes)


class _Taker:
    """Calls `take` when more of the arena is ready, and measures it."""

    def __init__(self, reader: Reader, take: Take | None) -> None:
        self._reader = reader
        self._take = take
        self.seconds = 0.0
        self.taken_bytes = 0
        if take is not None:
            reader.take(0)

    @property
    def known_bytes(self) -> float:
        """Up to where nothing is left to do here; without `take` nothing ever is."""
        return math.inf if self._take is None else self.taken_bytes

    def look(self) -> None:
        """Let `take` have what became ready since the last look."""
        ready = self._reader.ready_bytes
        if self._take is None or ready <= self.taken_bytes:
            return
        began = time.perf_counter()
        self.taken_bytes = self._take(ready)
        self.seconds += time.perf_counter() - began
        self._reader.take(self.taken_bytes)

    def finish(self) -> None:
        """Have everything taken, now that all is read."""
        while self.taken_bytes < self._reader.ready_bytes and self._take is not None:
            self.look()


def _threads_for(reader: Reader) -> int:
    cores = min(4, os.cpu_count() or 1)
    return max(cores, COLD_THREADS) if reader.is_cold else cores


def _run_threads(reader: Reader, taker: _Taker, total: int, monitor: Monitor, count: int) -> None:
    workers = [threading.Thread(target=reader.run, name=f"read-{n}", daemon=True) for n in range(count)]
    started: list[threading.Thread] = []
    try:
        for worker in workers:
            reader.expect_thread()
            worker.start()
            started.append(worker)
        while reader.is_running:
            reader.wait(taker.known_bytes, PROGRESS_SECONDS)
            taker.look()
            monitor.progress(reader.work.read_bytes, total)
            monitor.check_cancelled()
    finally:
        reader.stop()
        for worker in started:
            worker.join()
    reader.raise_error()
    monitor.check_cancelled()  # the readers may have been done before they were looked at
    taker.finish()
    monitor.progress(reader.work.read_bytes, total)

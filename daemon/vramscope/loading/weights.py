"""Reads safetensors data into one room. Peak memory is the room plus a small buffer for each thread."""

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from vramscope.anatomy.header import Header, TensorEntry
from vramscope.loading.monitor import Monitor
from vramscope.loading.reader import Reader
from vramscope.loading.room import Room
from vramscope.loading.spans import PIECE_BYTES, ArenaLayout
from vramscope.loading.weightfile import Identity

PROGRESS_SECONDS = 0.1
# A disk is busy only with several requests at once.
COLD_THREADS = 4
# Every piece that is read while torch is being imported takes the interpreter away from it, and a processor that has to
# be woken keeps it for milliseconds: with pieces of 4 MiB the import took a tenth longer.
AHEAD_PIECE_BYTES = 64 << 20
# Takes tensors from the arena up to an offset; returns up to which one nothing of it is needed any more.
Take = Callable[[int], int]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the bytes came: `cached_bytes` of them through the page cache, the others past it.

    `ahead_bytes` of them were read before anybody asked for them.
    """

    nbytes: int
    cached_bytes: int
    ahead_bytes: int = 0

    @property
    def cached_share(self) -> float | None:
        return self.cached_bytes / self.nbytes if self.nbytes else None

    @property
    def way(self) -> str | None:
        """How most bytes came; None where there were none."""
        return None if not self.nbytes else "cached" if 2 * self.cached_bytes >= self.nbytes else "direct"


class StagedWeights:
    """Weights of a model, laid out in a room of their own. They may be looked at as tensors, but for their contents."""

    def __init__(self, tensors: Iterable[tuple[Header, TensorEntry]], wanted: Callable[[TensorEntry], str]) -> None:
        """Lay out tensors that come in file order. Raises MemoryError."""
        placed = list(tensors)
        self.layout = ArenaLayout.of(placed, wanted)
        self.room = Room(self.layout.arena_bytes)
        self.identities: dict[Path, Identity] = {header.path: header.identity for header, _ in placed}
        self._begun: _Filling | None = None

    def is_as(self, other: "StagedWeights") -> bool:
        """Whether the other one has the same bytes of the same files in the same places."""
        return (self.layout, self.identities) == (other.layout, other.identities)

    def begin(self) -> None:
        """Let one thread fill it from now on, through the page cache; `fill` goes on from there. Raises SourceError."""
        self._begun = _Filling(self.layout, self.room.memory, self.identities, AHEAD_PIECE_BYTES)
        self._begun.start(1)

    def stop(self) -> None:
        """End what was begun; nothing may be filled any more."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.close()

    def fill(
        self,
        monitor: Monitor,
        *,
        threads: int = 0,
        take: Take | None = None,
        taken_bytes: int = 0,
        ring: memoryview | None = None,
    ) -> Reading:
        """Read everything. `take` is told, in this thread, up to which offset the room is ready, and may empty it.

        It returns up to where it has done so, and is asked again at once while that is less. With a `ring` (Reader) no
        byte of the room is touched, and its offsets are those of the ring, modulo its length.
        Reports the phases `read` and `convert`, and `copy` of `taken_bytes` where `take` is given: all three are
        measured where they happen, and the pass's wall time is split in the ratio of their sums. What was begun before
        does not count for them. Raises SourceError, StepCancelledError.
        """
        began = time.perf_counter()
        filling, self._begun = self._begun, None
        if filling is None:
            filling = _Filling(self.layout, self.room.memory if ring is None else ring, self.identities)
        before = filling.reader.work_so_far()
        taker = _Taker(filling.reader, take)
        try:
            filling.run(taker, monitor, threads)
        finally:
            filling.close()
        wall, work = time.perf_counter() - began, filling.reader.work.since(before)
        spent = {
            "read": (work.read_seconds, work.read_bytes),
            "convert": (work.convert_seconds, work.converted_bytes),
            "copy": (taker.seconds, taken_bytes),
        }
        busy = sum(seconds for seconds, _ in spent.values())
        for phase, (seconds, nbytes) in spent.items():
            if seconds or phase == "read":
                monitor.record_phase(phase, wall * seconds / busy if busy else wall, nbytes)
        total = filling.reader.work
        return Reading(nbytes=total.read_bytes, cached_bytes=total.cached_bytes, ahead_bytes=before.read_bytes)


class _Filling:
    """A reader and its threads. What is open at a failure is closed at once. Raises SourceError."""

    def __init__(
        self,
        layout: ArenaLayout,
        memory: memoryview,
        identities: Mapping[Path, Identity],
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self.reader = Reader(layout, memory, identities, piece_bytes)
        self._total = layout.file_bytes
        self._threads: list[threading.Thread] = []
        try:
            self.reader.open()
        except BaseException:
            self.reader.close()
            raise

    def start(self, count: int) -> None:
        """Have so many threads in all."""
        for number in range(len(self._threads), count):
            thread = threading.Thread(target=self.reader.run, name=f"read-{number}", daemon=True)
            self.reader.expect_thread()
            thread.start()
            self._threads.append(thread)

    def run(self, taker: "_Taker", monitor: Monitor, count: int) -> None:
        """Wait until everything is read and taken. The threads are gone then, however it ends."""
        try:
            self.start(count or _threads_for(self.reader))
            while self.reader.is_running:
                self.reader.wait(taker.known_bytes, PROGRESS_SECONDS)
                taker.look()
                monitor.progress(self.reader.work.read_bytes, self._total)
                monitor.check_cancelled()
        finally:
            self._join()
        self.reader.raise_error()
        monitor.check_cancelled()  # the readers may have been done before they were looked at
        taker.finish()
        monitor.progress(self.reader.work.read_bytes, self._total)

    def _join(self) -> None:
        self.reader.stop()
        for thread in self._threads:
            thread.join()

    def close(self) -> None:
        self._join()
        self.reader.close()


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

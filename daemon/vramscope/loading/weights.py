"""Reads safetensors data into one arena, converting to the wanted dtype on the way.

Several threads take chunks of a file in turn; each reads into the arena, or, where the dtype changes, into a buffer
that fits the processor's cache and converts from there. Peak memory is the arena plus one small buffer a thread.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import torch

from vramscope.anatomy.header import Header, TensorEntry, identity_of
from vramscope.errors import SourceError
from vramscope.loading.arena import Arena
from vramscope.loading.monitor import Monitor
from vramscope.loading.spans import CHUNK_BYTES, ArenaLayout, Span

Identity = tuple[int, ...] | None

PROGRESS_SECONDS = 0.1
# How far the readers may run ahead of what takes the tensors from the arena, where something does.
WINDOW_BYTES = 128 << 20


def convert(target: torch.Tensor, source: torch.Tensor, scratch: torch.Tensor) -> None:
    """Write `source` into `target` with its dtype, element by element as `target.copy_(source)` does.

    Between the two 16-bit formats torch has no vectorised copy; two copies through float32 give the same bits in a
    third of the time, or less, for every one of the 65,536 patterns that is a number. A NaN stays one, of other bits.
    """
    if {source.dtype, target.dtype} == {torch.bfloat16, torch.float16}:
        middle = scratch[: source.numel()]
        middle.copy_(source)
        target.copy_(middle)
    else:
        target.copy_(source)


class _Reader:
    """The threads that fill an arena, and what they share."""

    def __init__(self, layout: ArenaLayout, memory: torch.Tensor, identities: Mapping[Path, Identity]) -> None:
        self._identities = identities
        self._pieces = enumerate(piece for span in layout.spans for piece in span.pieces())
        self._arena = memory
        self._view = memoryview(memory.numpy())  # type: ignore[arg-type]
        self._files: dict[Path, int] = {}
        self._paths = {span.path for span in layout.spans}
        self._changed = threading.Condition()
        self._stopped = False
        self._running = 0
        self._finished: dict[int, int] = {}  # the arena offset at which each piece ends that came before its turn
        self._pieces_ready = 0
        self._taken_bytes: int | None = None  # up to where the arena was emptied; None where nobody empties it
        self.ready_bytes = 0
        self.bytes_done = 0
        self.read_seconds = 0.0
        self.convert_seconds = 0.0
        self.converted_bytes = 0
        self._errors: list[BaseException] = []

    def open(self) -> None:
        """Open every file; what is open at a failure is closed by `close`."""
        for path in self._paths:
            try:
                self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                found = identity_of(os.fstat(self._files[path]))
            except OSError as error:
                raise SourceError(f"{path}: cannot be opened: {error.strerror}") from None
            if self._identities.get(path) not in (None, found):
                hint = "the file was replaced during the load; load again when that is over"
                raise SourceError(f"{path} is not the file any more whose header was read", hint=hint)

    def run(self) -> None:
        """One thread's work: take the next piece until none is left or somebody failed."""
        try:
            torch.set_num_threads(1)
            buffer = bytearray(CHUNK_BYTES)
            scratch = torch.empty(CHUNK_BYTES // 2, dtype=torch.float32)
            while (turn := self._next()) is not None:
                self._fill(*turn, memoryview(buffer), scratch)
        except BaseException as error:  # noqa: BLE001 - carried to the thread that waits, which raises it
            self._errors.append(error)
            self.stop()
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @property
    def is_running(self) -> bool:
        return self._running > 0

    def expect_thread(self) -> None:
        """Count a thread that is about to call `run`."""
        with self._changed:
            self._running += 1

    def raise_error(self) -> None:
        """Raise the first error of a thread, if there is one, and keep none: their frames hold the whole arena."""
        first, self._errors = self._errors[:1], []
        if first:
            raise first.pop()

    def stop(self) -> None:
        """Let every thread end after its current piece."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def take(self, upto: int) -> None:
        """Say that the arena below this offset was emptied; the readers run no further ahead than the window."""
        with self._changed:
            self._taken_bytes = upto
            self._changed.notify_all()

    def wait(self, known: float, seconds: float) -> None:
        """Wait until more is ready than `known` or a thread is done, but no longer than this."""
        with self._changed:
            running = self._running
            self._changed.wait_for(lambda: self._running < running or self.ready_bytes > known, seconds)

    def close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)

    def _next(self) -> tuple[int, Span] | None:
        with self._changed:
            turn = None if self._stopped else next(self._pieces, None)
            if turn is not None:
                self._changed.wait_for(lambda: self._stopped or self._in_window(turn[1]))
            return None if self._stopped else turn

    def _in_window(self, piece: Span) -> bool:
        return self._taken_bytes is None or piece.arena_offset < self._taken_bytes + WINDOW_BYTES

    def _fill(self, index: int, piece: Span, buffer: memoryview, scratch: torch.Tensor) -> None:
        nbytes = piece.elements * piece.stored.itemsize
        direct = piece.stored == piece.wanted
        into = self._view[piece.arena_offset : piece.arena_offset + nbytes] if direct else buffer[:nbytes]
        began = time.perf_counter()
        self._read(piece, into)
        read = time.perf_counter()
        if not direct:
            source = torch.frombuffer(into, dtype=piece.stored)
            convert(self._arena[piece.arena_offset : piece.arena_end].view(piece.wanted), source, scratch)
        done = time.perf_counter()
        with self._changed:
            self.bytes_done += nbytes
            self.read_seconds += read - began
            if not direct:
                self.convert_seconds += done - read
                self.converted_bytes += piece.arena_end - piece.arena_offset
            self._finished[index] = piece.arena_end
            while self._pieces_ready in self._finished:
                self.ready_bytes = self._finished.pop(self._pieces_ready)
                self._pieces_ready += 1
            self._changed.notify_all()

    def _read(self, piece: Span, into: memoryview) -> None:
        done = 0
        while done < len(into):
            try:
                got = os.preadv(self._files[piece.path], [into[done:]], piece.file_offset + done)
            except OSError as error:
                raise SourceError(f"{piece.path}: cannot be read: {error.strerror}") from None
            if got == 0:
                raise SourceError(
                    f"{piece.path} ended at byte {piece.file_offset + done} while its header promises more",
                    hint="the file was truncated or replaced during the load; copy it again",
                )
            done += got


class StagedWeights:
    """Weights of a model, laid out but not read. Views of the arena may be used for anything but their contents."""

    def __init__(
        self, tensors: Iterable[tuple[Header, TensorEntry]], wanted: Callable[[TensorEntry], torch.dtype]
    ) -> None:
        """Lay out tensors that come in file order. Raises SourceError, MemoryError."""
        self._identities: dict[Path, Identity] = {}
        self.layout = ArenaLayout.of(self._noted(tensors), wanted)
        self.arena = Arena(self.layout.arena_bytes)

    def _noted(self, tensors: Iterable[tuple[Header, TensorEntry]]) -> Iterator[tuple[Header, TensorEntry]]:
        for header, tensor in tensors:
            self._identities[header.path] = header.identity
            yield header, tensor

    def views(self) -> dict[str, torch.Tensor]:
        """Every tensor by name, as a view of the arena."""
        return {name: place.view(self.arena.memory) for name, place in self.layout.places.items()}

    def fill(self, monitor: Monitor, *, threads: int = 0, take: Callable[[int], None] | None = None) -> None:
        """Read everything. `take` is told, in this thread, up to which offset the arena is ready, and may empty it.

        Reports the phases `read` and `convert`, and `copy` where `take` is given: all three are measured where they
        happen, and the pass's wall time is split in the ratio of their sums. Raises SourceError, StepCancelledError.
        """
        began = time.perf_counter()
        reader = _Reader(self.layout, self.arena.memory, self._identities)
        taker = _Taker(reader, take)
        try:
            reader.open()
            _run_threads(reader, taker, self.layout.file_bytes, monitor, threads or min(4, os.cpu_count() or 1))
        finally:
            reader.close()
        wall = time.perf_counter() - began
        spent = {
            "read": (reader.read_seconds, reader.bytes_done),
            "convert": (reader.convert_seconds, reader.converted_bytes),
            "copy": (taker.seconds, taker.taken_bytes),
        }
        busy = sum(seconds for seconds, _ in spent.values()) or 1.0
        for phase, (seconds, nbytes) in spent.items():
            if seconds or phase == "read":
                monitor.record_phase(phase, wall * seconds / busy, nbytes)


class _Taker:
    """Calls `take` when more of the arena is ready, and measures it."""

    def __init__(self, reader: _Reader, take: Callable[[int], None] | None) -> None:
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
        self._take(ready)
        self.seconds += time.perf_counter() - began
        self.taken_bytes = ready
        self._reader.take(ready)


def read_weights(
    tensors: Iterable[tuple[Header, TensorEntry]],
    wanted: Callable[[TensorEntry], torch.dtype],
    monitor: Monitor,
    *,
    threads: int = 0,
) -> dict[str, torch.Tensor]:
    """Return every tensor by name, in the dtype that `wanted` says, as views of one filled arena."""
    staged = StagedWeights(tensors, wanted)
    staged.fill(monitor, threads=threads)
    return staged.views()


def _run_threads(reader: _Reader, taker: _Taker, total: int, monitor: Monitor, count: int) -> None:
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
            monitor.progress(reader.bytes_done, total)
            monitor.check_cancelled()
    finally:
        reader.stop()
        for worker in started:
            worker.join()
    reader.raise_error()
    taker.look()
    monitor.progress(reader.bytes_done, total)

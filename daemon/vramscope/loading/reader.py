"""The threads that fill an arena from files, in pieces and in order, converting to the wanted dtype on the way.

Each thread reads a piece into its place. Where the dtype changes it reads chunk by chunk into a buffer that fits the
processor's cache, and converts from there; bfloat16 becomes float16 in its place, where that is compiled (halves.py).
"""

import ctypes
import mmap
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from vramscope.loading import halves
from vramscope.loading.convert import Converter
from vramscope.loading.halves import address_of
from vramscope.loading.priority import give_way
from vramscope.loading.spans import PIECE_BYTES, ArenaLayout, Span, item_bytes
from vramscope.loading.weightfile import PAGE_BYTES, Identity, WeightFile

# How far the readers may run ahead of what takes the tensors from the arena, where something does.
WINDOW_BYTES = 128 << 20


@dataclass
class Work:
    """What was done so far: bytes of files, seconds summed over the threads, and bytes of the arena."""

    read_bytes: int = 0
    cached_bytes: int = 0
    read_seconds: float = 0.0
    convert_seconds: float = 0.0
    converted_bytes: int = 0

    def add(self, other: "Work") -> None:
        self.read_bytes += other.read_bytes
        self.cached_bytes += other.cached_bytes
        self.read_seconds += other.read_seconds
        self.convert_seconds += other.convert_seconds
        self.converted_bytes += other.converted_bytes


class _Desk:
    """What one thread works with."""

    @cached_property
    def _bounce(self) -> mmap.mmap:
        """Memory for a piece that is read past the page cache, at the boundary of a page, as that demands."""
        return mmap.mmap(-1, PIECE_BYTES + 2 * PAGE_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    @cached_property
    def _converter(self) -> Converter:
        return Converter()

    def fill(self, file: WeightFile, piece: Span, memory: memoryview) -> Work:
        """Bring one piece to its place in the arena, or in the ring that stands for it."""
        start = piece.arena_offset % len(memory)
        target = memory[start : start + piece.arena_end - piece.arena_offset]
        work = Work(read_bytes=piece.nbytes, converted_bytes=0 if piece.stored == piece.wanted else len(target))
        aligned = piece.file_offset % item_bytes(piece.stored) == 0
        cached = not aligned or file.is_cached(piece.file_offset, piece.nbytes)
        if cached or not self._fill_past_cache(file, piece, target, work):
            self._fill_from_cache(file, piece, target, work)
        return work

    def _fill_past_cache(self, file: WeightFile, piece: Span, target: memoryview, work: Work) -> bool:
        began = time.perf_counter()
        found = file.read_past_cache(piece.file_offset, piece.nbytes, self._bounce)
        if found is None:
            return False
        if piece.stored == piece.wanted:
            ctypes.memmove(address_of(target), address_of(found), len(found))  # the interpreter runs meanwhile
            work.read_seconds += time.perf_counter() - began
            return True
        read = time.perf_counter()
        self._convert(target, found, piece)
        work.read_seconds += read - began
        work.convert_seconds += time.perf_counter() - read
        return True

    def _fill_from_cache(self, file: WeightFile, piece: Span, target: memoryview, work: Work) -> None:
        work.cached_bytes = piece.nbytes
        if piece.stored == piece.wanted:
            began = time.perf_counter()
            file.read(target, piece.file_offset)
            work.read_seconds += time.perf_counter() - began
            return
        if halves.native and piece.is_halves:
            read, converted = file.read_halves(target, piece.file_offset, halves.native)
        else:
            read, converted = self._converter.read(piece, target, file.read)
        work.read_seconds += read
        work.convert_seconds += converted

    def _convert(self, target: memoryview, source: memoryview, piece: Span) -> None:
        if halves.native and piece.is_halves:
            halves.native.convert(target, source)
        else:
            self._converter.convert(piece, target, source)


class Reader:
    """The threads' common state: whose turn it is, how far they are, and what went wrong.

    `memory` is the arena, or a ring: of several times PIECE_BYTES, in which what was taken makes room for what comes.
    """

    def __init__(self, layout: ArenaLayout, memory: memoryview, identities: Mapping[Path, Identity]) -> None:
        self._identities = identities
        self._pieces = enumerate(piece for span in layout.spans for piece in span.pieces())
        self._layout = layout
        self._memory = memory
        self._files: dict[str, WeightFile] = {}
        self._opened = ExitStack()
        self._changed = threading.Condition()
        self._stopped = False
        self._running = 0
        self._finished: dict[int, int] = {}  # the arena offset at which each piece ends that came before its turn
        self._pieces_ready = 0
        self._taken_bytes: int | None = None  # up to where the arena was emptied; None where nobody empties it
        self._errors: list[BaseException] = []
        self.ready_bytes = 0
        self.work = Work()

    def open(self) -> None:
        """Open every file; what is open at a failure is closed by `close`."""
        for span in self._layout.spans:
            if str(span.path) not in self._files:
                self._files[str(span.path)] = file = WeightFile(span.path, self._identities.get(span.path))
                self._opened.callback(file.close)

    def close(self) -> None:
        self._opened.close()

    @property
    def is_cold(self) -> bool:
        """Whether a file has to be read from where it is stored, by a look at the begin of each span."""
        return not all(
            self._files[str(span.path)].is_cached(span.file_offset, min(span.nbytes, PIECE_BYTES))
            for span in self._layout.spans
        )

    def run(self) -> None:
        """One thread's work: take the next piece until none is left or somebody failed."""
        try:
            give_way()
            desk = _Desk()
            while (turn := self._next()) is not None:
                index, piece = turn
                self._note(index, piece, desk.fill(self._files[str(piece.path)], piece, self._memory))
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
        """Wait until more is ready than `known` or every thread is done, but no longer than this."""
        with self._changed:
            self._changed.wait_for(lambda: not self._running or self.ready_bytes > known, seconds)

    def _next(self) -> tuple[int, Span] | None:
        with self._changed:
            turn = None if self._stopped else next(self._pieces, None)
            if turn is not None:
                self._changed.wait_for(lambda: self._stopped or self._in_window(turn[1]))
            return None if self._stopped else turn

    def _in_window(self, piece: Span) -> bool:
        if self._taken_bytes is None:
            return True
        ahead = piece.arena_end - self._taken_bytes
        return ahead <= WINDOW_BYTES and ahead <= len(self._memory)

    def _note(self, index: int, piece: Span, work: Work) -> None:
        """Say that a piece is in its place."""
        with self._changed:
            self.work.add(work)
            self._finished[index] = piece.arena_end
            while self._pieces_ready in self._finished:
                self.ready_bytes = self._finished.pop(self._pieces_ready)
                self._pieces_ready += 1
            if self._taken_bytes is not None:  # nobody else waits for a piece, and to be woken takes a core's time
                self._changed.notify_all()

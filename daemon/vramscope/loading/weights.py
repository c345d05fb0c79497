"""Reads safetensors data into one arena, converting to the wanted dtype on the way.

Several threads take chunks of a file in turn; each reads into the arena, or, where the dtype changes, into a buffer
that fits the processor's cache and converts from there. Peak memory is the arena plus one small buffer a thread.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from vramscope.anatomy.header import Header, TensorEntry
from vramscope.errors import SourceError
from vramscope.loading.arena import allocate_arena
from vramscope.loading.monitor import Monitor

# Large enough to keep system calls rare, small enough that the conversion finds the bytes still in the cache.
CHUNK_BYTES = 1 << 20
ALIGNMENT_BYTES = 64
PROGRESS_SECONDS = 0.1

TORCH_DTYPES: dict[str, torch.dtype] = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "U16": torch.uint16,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I32": torch.int32,
    "U32": torch.uint32,
    "F32": torch.float32,
    "I64": torch.int64,
    "U64": torch.uint64,
    "F64": torch.float64,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "F8_E8M0": torch.float8_e8m0fnu,
    "F8_E4M3FNUZ": torch.float8_e4m3fnuz,
    "F8_E5M2FNUZ": torch.float8_e5m2fnuz,
}


@dataclass(frozen=True, kw_only=True)
class Span:
    """Consecutive elements of a file that go to consecutive places of the arena (offsets in bytes)."""

    path: Path
    file_offset: int
    arena_offset: int
    elements: int
    stored: torch.dtype
    wanted: torch.dtype

    def pieces(self) -> Iterator["Span"]:
        """The span cut into chunks of at most CHUNK_BYTES."""
        step = max(1, CHUNK_BYTES // max(self.stored.itemsize, self.wanted.itemsize))
        for first in range(0, self.elements, step):
            yield replace(
                self,
                file_offset=self.file_offset + first * self.stored.itemsize,
                arena_offset=self.arena_offset + first * self.wanted.itemsize,
                elements=min(step, self.elements - first),
            )


@dataclass
class _Layout:
    """Where each tensor lies in the arena, and what has to be read to fill it."""

    spans: list[Span] = field(default_factory=list)
    places: dict[str, tuple[int, TensorEntry, torch.dtype]] = field(default_factory=dict)
    arena_bytes: int = 0
    file_bytes: int = 0

    def add(self, header: Header, entry: TensorEntry, wanted: torch.dtype) -> None:
        stored = TORCH_DTYPES.get(entry.dtype)
        if stored is None:
            raise SourceError(
                f"{header.path}: tensor {entry.name!r} has dtype {entry.dtype}, which torch {torch.__version__} lacks"
            )
        last = self.spans[-1] if self.spans else None
        file_offset = header.data_offset + entry.start
        joins = (
            last is not None
            and (last.path, last.stored, last.wanted) == (header.path, stored, wanted)
            and last.file_offset + last.elements * stored.itemsize == file_offset
        )
        if last is not None and joins:
            offset = last.arena_offset + last.elements * wanted.itemsize
            self.spans[-1] = replace(last, elements=last.elements + entry.elements)
        else:
            offset = -(-self.arena_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
            span = Span(
                path=header.path,
                file_offset=file_offset,
                arena_offset=offset,
                elements=entry.elements,
                stored=stored,
                wanted=wanted,
            )
            self.spans.append(span)
        self.places[entry.name] = (offset, entry, wanted)
        self.arena_bytes = offset + entry.elements * wanted.itemsize
        self.file_bytes += entry.nbytes


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

    def __init__(self, layout: _Layout, arena: torch.Tensor) -> None:
        self._pieces = (piece for span in layout.spans for piece in span.pieces())
        self._arena = arena
        self._view = memoryview(arena.numpy())  # type: ignore[arg-type]
        self._files: dict[Path, int] = {}
        self._paths = {span.path for span in layout.spans}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self.bytes_done = 0
        self.read_seconds = 0.0
        self.convert_seconds = 0.0
        self._errors: list[BaseException] = []

    def open(self) -> None:
        """Open every file; what is open at a failure is closed by `close`."""
        for path in self._paths:
            try:
                self._files[path] = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except OSError as error:
                raise SourceError(f"{path}: cannot be opened: {error.strerror}") from None

    def run(self) -> None:
        """One thread's work: take the next piece until none is left or somebody failed."""
        try:
            torch.set_num_threads(1)
            buffer = bytearray(CHUNK_BYTES)
            scratch = torch.empty(CHUNK_BYTES // 2, dtype=torch.float32)
            while (piece := self._next()) is not None:
                self._fill(piece, memoryview(buffer), scratch)
        except BaseException as error:  # noqa: BLE001 - carried to the thread that waits, which raises it
            self._errors.append(error)
            self._stop.set()

    def raise_error(self) -> None:
        """Raise the first error of a thread, if there is one, and keep none: their frames hold the whole arena."""
        first, self._errors = self._errors[:1], []
        if first:
            raise first.pop()

    def stop(self) -> None:
        self._stop.set()

    def close(self) -> None:
        for descriptor in self._files.values():
            os.close(descriptor)

    def _next(self) -> Span | None:
        with self._lock:
            return None if self._stop.is_set() else next(self._pieces, None)

    def _fill(self, piece: Span, buffer: memoryview, scratch: torch.Tensor) -> None:
        nbytes = piece.elements * piece.stored.itemsize
        direct = piece.stored == piece.wanted
        into = self._view[piece.arena_offset : piece.arena_offset + nbytes] if direct else buffer[:nbytes]
        began = time.perf_counter()
        self._read(piece, into)
        read = time.perf_counter()
        if not direct:
            source = torch.frombuffer(into, dtype=piece.stored)
            end = piece.arena_offset + piece.elements * piece.wanted.itemsize
            convert(self._arena[piece.arena_offset : end].view(piece.wanted), source, scratch)
        done = time.perf_counter()
        with self._lock:
            self.bytes_done += nbytes
            self.read_seconds += read - began
            self.convert_seconds += 0.0 if direct else done - read

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


def read_weights(
    tensors: Sequence[tuple[Header, TensorEntry]],
    wanted: Callable[[TensorEntry], torch.dtype],
    monitor: Monitor,
    *,
    threads: int = 0,
) -> dict[str, torch.Tensor]:
    """Return every tensor by name, in the dtype that `wanted` says, as views of one arena.

    `tensors` should come in file order. Reports the phases `read` and `convert`: the threads measure both, and the
    pass's wall time is split in the ratio of their sums. Raises SourceError, StepCancelledError, MemoryError.
    """
    layout = _Layout()
    for header, entry in tensors:
        layout.add(header, entry, wanted(entry))
    began = time.perf_counter()
    try:
        arena = allocate_arena(layout.arena_bytes)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"the system has no {layout.arena_bytes} bytes for the weights: {error}") from None
    reader = _Reader(layout, arena)
    try:
        reader.open()
        _run_threads(reader, layout.file_bytes, monitor, threads or min(4, os.cpu_count() or 1))
    finally:
        reader.close()
    wall = time.perf_counter() - began
    busy = reader.read_seconds + reader.convert_seconds
    share = reader.read_seconds / busy if busy else 1.0
    monitor.record_phase("read", wall * share, layout.file_bytes)
    if reader.convert_seconds:
        monitor.record_phase("convert", wall * (1 - share), layout.arena_bytes)
    return {
        name: arena[offset : offset + entry.elements * dtype.itemsize].view(dtype).view(entry.shape)
        for name, (offset, entry, dtype) in layout.places.items()
    }


def _run_threads(reader: _Reader, total: int, monitor: Monitor, count: int) -> None:
    workers = [threading.Thread(target=reader.run, name=f"read-{n}", daemon=True) for n in range(count)]
    started: list[threading.Thread] = []
    try:
        for worker in workers:
            worker.start()
            started.append(worker)
        for worker in started:
            while worker.is_alive():
                worker.join(PROGRESS_SECONDS)
                monitor.progress(reader.bytes_done, total)
                monitor.check_cancelled()
    finally:
        reader.stop()
        for worker in started:
            worker.join()
    reader.raise_error()
    monitor.progress(reader.bytes_done, total)

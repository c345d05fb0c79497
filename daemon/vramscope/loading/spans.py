"""What has to be read for a set of tensors, and where in the arena it goes. All offsets are bytes."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from vramscope.anatomy.header import Header, TensorEntry
from vramscope.errors import SourceError
from vramscope.memory.rules import round_up

# What one thread takes at a time: large enough that threads seldom wait for each other and for the interpreter's lock.
PIECE_BYTES = 4 << 20
ALIGNMENT_BYTES = 64

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
    """Consecutive elements of a file that go to consecutive places of the arena."""

    path: Path
    file_offset: int
    arena_offset: int
    elements: int
    stored: torch.dtype
    wanted: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.elements * self.stored.itemsize

    @property
    def arena_end(self) -> int:
        return self.arena_offset + self.elements * self.wanted.itemsize

    def pieces(self) -> Iterator["Span"]:
        """The span cut into pieces of at most PIECE_BYTES, none of them across a multiple of that in the arena."""
        longest, first = max(1, PIECE_BYTES // max(self.stored.itemsize, self.wanted.itemsize)), 0
        while first < self.elements:
            offset = self.arena_offset + first * self.wanted.itemsize
            to_edge = (PIECE_BYTES - offset % PIECE_BYTES) // self.wanted.itemsize
            elements = min(longest, to_edge, self.elements - first)
            yield replace(
                self,
                file_offset=self.file_offset + first * self.stored.itemsize,
                arena_offset=offset,
                elements=elements,
            )
            first += elements


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one tensor lies in the arena, and as what."""

    offset: int
    entry: TensorEntry
    dtype: torch.dtype

    @property
    def end(self) -> int:
        return self.offset + self.entry.elements * self.dtype.itemsize

    def view(self, memory: torch.Tensor) -> torch.Tensor:
        return memory[self.offset : self.end].view(self.dtype).view(self.entry.shape)


@dataclass
class ArenaLayout:
    """Where each tensor lies in the arena, in file order, and what has to be read to fill it."""

    spans: list[Span] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    arena_bytes: int = 0
    file_bytes: int = 0

    @classmethod
    def of(
        cls, tensors: Iterable[tuple[Header, TensorEntry]], wanted: Callable[[TensorEntry], torch.dtype]
    ) -> "ArenaLayout":
        """Lay out tensors that come in file order. Raises SourceError for a dtype that torch does not have."""
        layout = cls()
        for header, entry in tensors:
            layout._add(header, entry, wanted(entry))
        return layout

    def _add(self, header: Header, entry: TensorEntry, wanted: torch.dtype) -> None:
        stored = TORCH_DTYPES.get(entry.dtype)
        if stored is None:
            raise SourceError(
                f"{header.path}: tensor {entry.name!r} has dtype {entry.dtype}, of which "
                f"torch {torch.__version__} has no tensor with one value an element"
            )
        file_offset = header.data_offset + entry.start
        if (last := self._joined(header.path, file_offset, stored, wanted)) is not None:
            offset = last.arena_end
            self.spans[-1] = replace(last, elements=last.elements + entry.elements)
        else:
            offset = round_up(self.arena_bytes, ALIGNMENT_BYTES)
            span = Span(
                path=header.path,
                file_offset=file_offset,
                arena_offset=offset,
                elements=entry.elements,
                stored=stored,
                wanted=wanted,
            )
            self.spans.append(span)
        self.places[entry.name] = Place(offset=offset, entry=entry, dtype=wanted)
        self.arena_bytes = offset + entry.elements * wanted.itemsize
        self.file_bytes += entry.nbytes

    def _joined(self, path: Path, file_offset: int, stored: torch.dtype, wanted: torch.dtype) -> Span | None:
        """The last span, if what begins at `file_offset` continues it."""
        last = self.spans[-1] if self.spans else None
        if last is None or (last.path, last.stored, last.wanted) != (path, stored, wanted):
            return None
        return last if last.file_offset + last.elements * stored.itemsize == file_offset else None

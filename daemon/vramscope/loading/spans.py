"""What has to be read for a set of tensors, and where in the arena it goes.

All offsets are bytes, and all dtypes are named as safetensors names them.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from vramscope.anatomy.header import DTYPE_BITS, Header, TensorEntry
from vramscope.memory.rules import round_up

# What one thread takes at a time: large enough that threads seldom wait for each other and for the interpreter's lock.
PIECE_BYTES = 4 << 20
ALIGNMENT_BYTES = 64


def item_bytes(dtype: str) -> int:
    """What one element takes, by safetensors' name of a dtype whose elements take whole bytes."""
    return DTYPE_BITS[dtype] // 8


@dataclass(frozen=True, kw_only=True)
class Span:
    """Consecutive elements of a file that go to consecutive places of the arena."""

    path: Path
    file_offset: int
    arena_offset: int
    elements: int
    stored: str
    wanted: str

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.elements * item_bytes(self.stored)

    @property
    def is_halves(self) -> bool:
        """Whether bfloat16 becomes float16, which halves.py does."""
        return (self.stored, self.wanted) == ("BF16", "F16")

    @property
    def arena_end(self) -> int:
        return self.arena_offset + self.elements * item_bytes(self.wanted)

    def pieces(self) -> Iterator["Span"]:
        """The span cut into pieces of at most PIECE_BYTES, none of them across a multiple of that in the arena."""
        stored, wanted = item_bytes(self.stored), item_bytes(self.wanted)
        longest, first = max(1, PIECE_BYTES // max(stored, wanted)), 0
        while first < self.elements:
            offset = self.arena_offset + first * wanted
            to_edge = (PIECE_BYTES - offset % PIECE_BYTES) // wanted
            elements = min(longest, to_edge, self.elements - first)
            yield replace(
                self,
                file_offset=self.file_offset + first * stored,
                arena_offset=offset,
                elements=elements,
            )
            first += elements


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where one tensor lies in the arena, and as what."""

    offset: int
    entry: TensorEntry
    dtype: str

    @property
    def end(self) -> int:
        return self.offset + self.entry.elements * item_bytes(self.dtype)


@dataclass
class ArenaLayout:
    """Where each tensor lies in the arena, in file order, and what has to be read to fill it."""

    spans: list[Span] = field(default_factory=list)
    places: dict[str, Place] = field(default_factory=dict)
    arena_bytes: int = 0
    file_bytes: int = 0

    @classmethod
    def of(cls, tensors: Iterable[tuple[Header, TensorEntry]], wanted: Callable[[TensorEntry], str]) -> "ArenaLayout":
        """Lay out tensors that come in file order, each element of which takes whole bytes."""
        layout = cls()
        for header, entry in tensors:
            layout._add(header, entry, wanted(entry))
        return layout

    def _add(self, header: Header, entry: TensorEntry, wanted: str) -> None:
        file_offset = header.data_offset + entry.start
        if (last := self._joined(header.path, file_offset, entry.dtype, wanted)) is not None:
            offset = last.arena_end
            self.spans[-1] = replace(last, elements=last.elements + entry.elements)
        else:
            offset = round_up(self.arena_bytes, ALIGNMENT_BYTES)
            span = Span(
                path=header.path,
                file_offset=file_offset,
                arena_offset=offset,
                elements=entry.elements,
                stored=entry.dtype,
                wanted=wanted,
            )
            self.spans.append(span)
        self.places[entry.name] = Place(offset=offset, entry=entry, dtype=wanted)
        self.arena_bytes = offset + entry.elements * item_bytes(wanted)
        self.file_bytes += entry.nbytes

    def _joined(self, path: Path, file_offset: int, stored: str, wanted: str) -> Span | None:
        """The last span, if what begins at `file_offset` continues it."""
        last = self.spans[-1] if self.spans else None
        if last is None or (last.path, last.stored, last.wanted) != (path, stored, wanted):
            return None
        return last if last.file_offset + last.elements * item_bytes(stored) == file_offset else None

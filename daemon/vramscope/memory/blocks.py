"""The parts of the caching allocator: segments from the driver, cut into blocks, and pools of the free ones.

All sizes are bytes, addresses are integers.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self

from vramscope.memory.counters import PoolTallies


class Segment:
    """One cudaMalloc: a range of addresses that belongs to one pool and one stream until it is released.

    `rank` decides between free blocks of the same size: the lower is taken first.
    """

    __slots__ = ("address", "first", "pool", "rank", "size", "stream")

    def __init__(self, *, pool: "BlockPool", stream: int, address: int, size: int, rank: int) -> None:
        self.pool = pool
        self.stream = stream
        self.address = address
        self.size = size
        self.rank = rank
        self.first = Block(self, address, size)

    def __iter__(self) -> Iterator["Block"]:
        """Walk the blocks from the lowest address up."""
        block: Block | None = self.first
        while block is not None:
            yield block
            block = block.following


class Block:
    """A part of a segment that is handed out as a whole, or free. A segment starts as one free block."""

    __slots__ = ("address", "allocated", "following", "previous", "requested", "segment", "size")

    def __init__(self, segment: Segment, address: int, size: int) -> None:
        self.segment = segment
        self.address = address
        self.size = size
        self.allocated = False
        self.requested = 0
        self.previous: Block | None = None
        self.following: Block | None = None

    @property
    def is_split(self) -> bool:
        """Whether the block shares its segment, which then cannot be released."""
        return self.previous is not None or self.following is not None

    def split(self, size: int) -> "Block":
        """Keep the low `size` bytes, and return the rest as a free block of its own."""
        rest = Block(self.segment, self.address + size, self.size - size)
        rest.previous, rest.following = self, self.following
        if rest.following is not None:
            rest.following.previous = rest
        self.following = rest
        self.size = size
        return rest

    def absorb(self, following: "Block") -> None:
        """Take over the range of the next block, which is no more."""
        self.size += following.size
        self.following = following.following
        if self.following is not None:
            self.following.previous = self


Place = tuple[int, int, int, int, Block]


class BlockPool:
    """The free blocks of one pool, in the order in which torch looks at them: stream, size, rank, address."""

    def __init__(self, *, small: bool, tallies: PoolTallies) -> None:
        self.small = small
        self.tallies = tallies
        self._places: list[Place] = []  # the address is unique, so that blocks themselves are never compared

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Block]:
        """Walk the free blocks in order, as they are now; the pool may change meanwhile."""
        return iter([place[-1] for place in self._places])

    def add(self, block: Block) -> None:
        segment = block.segment
        insort(self._places, (segment.stream, block.size, segment.rank, block.address, block))

    def remove(self, block: Block) -> None:
        segment = block.segment
        index = bisect_left(self._places, (segment.stream, block.size, segment.rank, block.address))
        del self._places[index]

    def smallest_of(self, stream: int, size: int) -> Block | None:
        """Return the first block of `stream` that is not smaller than `size`."""
        index = bisect_left(self._places, (stream, size))
        if index == len(self._places) or self._places[index][0] != stream:
            return None
        return self._places[index][-1]

    def largest_below(self, stream: int, size: int) -> Iterator[Block]:
        """Return the blocks of `stream` that are smaller than `size`, the largest first."""
        start, end = (bisect_left(self._places, (stream, limit)) for limit in (0, size))
        return iter([place[-1] for place in reversed(self._places[start:end])])


@dataclass(frozen=True, kw_only=True)
class BlockSnapshot:
    """One block of a segment. `requested_bytes` is 0 where it is free."""

    address: int
    size_bytes: int
    requested_bytes: int
    allocated: bool


@dataclass(frozen=True, kw_only=True)
class SegmentSnapshot:
    """One segment and its blocks by address (torch.cuda.memory_snapshot, cut down)."""

    address: int
    size_bytes: int
    small: bool
    stream: int
    blocks: tuple[BlockSnapshot, ...]

    @classmethod
    def of(cls, segment: Segment) -> Self:
        blocks = tuple(
            BlockSnapshot(
                address=block.address,
                size_bytes=block.size,
                requested_bytes=block.requested,
                allocated=block.allocated,
            )
            for block in segment
        )
        return cls(
            address=segment.address,
            size_bytes=segment.size,
            small=segment.pool.small,
            stream=segment.stream,
            blocks=blocks,
        )

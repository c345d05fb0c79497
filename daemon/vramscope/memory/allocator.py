"""PyTorch's CUDA caching allocator as a model: which bytes torch would hold after the same requests.

The rules are those of the native backend in c10/cuda/CUDACachingAllocator.cpp (torch 2.14), and are checked against
what the real one did. Not modelled: expandable segments, CUDA graphs and private pools, cudaMallocAsync,
roundup_power2_divisions, garbage_collection_threshold, and blocks that a second stream still uses.
The names in brackets are those of that file.
https://github.com/pytorch/pytorch/blob/main/c10/cuda/CUDACachingAllocator.cpp
"""

from vramscope.errors import ExitCode, OutOfMemoryError, VramscopeError
from vramscope.memory.blocks import Block, BlockPool, BlockSnapshot, Segment, SegmentSnapshot
from vramscope.memory.counters import AllocatorCounters
from vramscope.memory.physical import PhysicalMemory
from vramscope.memory.rules import AllocatorSettings
from vramscope.memory.snapshot import AllocatorMemory

__all__ = [
    "AllocationError",
    "AllocatorSettings",
    "BlockSnapshot",
    "CachingAllocator",
    "PhysicalMemory",
    "SegmentSnapshot",
    "UnknownPointerError",
]


class AllocationError(OutOfMemoryError):
    """No room for a new segment, even after the cache was given back, as it stays. All sizes are bytes."""

    def __init__(self, *, requested_bytes: int, segment_bytes: int, free_bytes: int, hint: str = "") -> None:
        super().__init__(
            f"out of memory: a request of {requested_bytes} bytes needs a new segment of {segment_bytes} bytes, "
            f"and {free_bytes} bytes are free on the device",
            hint=hint,
        )
        self.requested_bytes = requested_bytes
        self.segment_bytes = segment_bytes
        self.free_bytes = free_bytes


class UnknownPointerError(VramscopeError):
    """A pointer was freed that is not allocated: never was, or was freed before."""

    exit_code = ExitCode.BUG

    def __init__(self, pointer: int) -> None:
        super().__init__(f"free of {pointer:#x}: no allocated block starts there")
        self.pointer = pointer


DEFAULT_SETTINGS = AllocatorSettings()


class CachingAllocator:
    """Hands out blocks of segments from `memory` and keeps freed ones for later, byte for byte as torch does.

    Sizes are bytes, pointers are integers. Not thread-safe: one thread owns it.
    """

    def __init__(self, memory: PhysicalMemory, settings: AllocatorSettings = DEFAULT_SETTINGS) -> None:
        self.settings = settings
        self._memory = memory
        self._counters = AllocatorCounters()
        self._small = BlockPool(small=True, tallies=self._counters.small_pool)
        self._large = BlockPool(small=False, tallies=self._counters.large_pool)
        self._segments: dict[int, Segment] = {}  # by address
        self._allocated: dict[int, Block] = {}  # by pointer
        self._segments_created = 0
        self._limit: int | None = None
        if settings.memory_fraction is not None:
            self._limit = int(settings.memory_fraction * memory.total_bytes)

    @property
    def allocated_bytes(self) -> int:
        return self._counters.all.allocated_bytes.current

    @property
    def reserved_bytes(self) -> int:
        return self._counters.all.reserved_bytes.current

    def allocate(self, nbytes: int, stream: int = 0) -> int | None:
        """Return the pointer of a block with room for `nbytes`; None for 0 bytes, which need no block.

        Raises AllocationError where the device has no room; free cached segments are given back by then.
        """
        if nbytes < 0:
            raise ValueError(f"cannot allocate {nbytes} bytes")
        if nbytes == 0:
            return None
        size = self.settings.block_bytes(nbytes)
        pool = self._small if self.settings.is_small(size) else self._large
        block = self._take_cached(pool, stream, size) or self._take_new(pool, stream, size)
        if block is None:
            self._counters.num_ooms += 1
            raise self._out_of_memory(nbytes, size)
        return self._hand_out(block, size, nbytes)

    def free(self, pointer: int | None) -> None:
        """Take a block back into its pool, joined with free neighbours; None, the pointer of 0 bytes, is ignored.

        Raises UnknownPointerError for what is not allocated.
        """
        if pointer is None:
            return
        block = self._allocated.pop(pointer, None)
        if block is None:
            raise UnknownPointerError(pointer)
        size, requested = block.size, block.requested
        block.allocated, block.requested = False, 0
        block, absorbed = self._join_neighbours(block)
        pool = block.segment.pool
        pool.add(block)
        split_count, split_bytes = -absorbed, size - block.size  # the absorbed blocks had this one for a neighbour
        if block.is_split:
            split_count += 1
            split_bytes += block.size
        for tallies in (self._counters.all, pool.tallies):
            tallies.splits_changed(split_count, split_bytes)
            tallies.blocks_changed(-1, -size, -requested)
        if self.settings.is_oversize(size):
            self._counters.oversize_allocations.add(-1)

    def empty_cache(self) -> None:
        """Give free segments back to the device; a free block with a neighbour in its segment stays."""
        self._release_cached()

    def reset_peak(self) -> None:
        """Let all peaks start again from what is live now."""
        self._counters.reset_peaks()

    def statistics(self) -> dict[str, int]:
        """Return the keys and values of torch.cuda.memory_stats(); max_split_size is -1 where there is none."""
        limit = self.settings.max_split_bytes
        return self._counters.as_dict() | {"max_split_size": -1 if limit is None else limit}

    def memory(self) -> AllocatorMemory:
        counters, tallies = self._counters, self._counters.all
        return AllocatorMemory(
            allocated_bytes=tallies.allocated_bytes.current,
            reserved_bytes=tallies.reserved_bytes.current,
            requested_bytes=tallies.requested_bytes.current,
            active_bytes=tallies.active_bytes.current,
            inactive_split_bytes=tallies.inactive_split_bytes.current,
            allocated_peak_bytes=tallies.allocated_bytes.peak,
            reserved_peak_bytes=tallies.reserved_bytes.peak,
            alloc_retries=counters.num_alloc_retries,
            ooms=counters.num_ooms,
        )

    def live(self) -> dict[int, int]:
        """Return the pointer of each allocated block, and the bytes that were asked for."""
        return {pointer: block.requested for pointer, block in self._allocated.items()}

    def segments(self) -> tuple[SegmentSnapshot, ...]:
        """Return all segments by address, each with its blocks."""
        return tuple(SegmentSnapshot.of(self._segments[address]) for address in sorted(self._segments))

    def signature(self) -> tuple[object, ...]:
        """All that later requests depend on, segments in the order of their creation; statistics are left out."""
        by_age = sorted(self._segments.values(), key=lambda segment: segment.rank)
        return tuple(
            (segment.address, segment.size, segment.stream, tuple((block.size, block.allocated) for block in segment))
            for segment in by_age
        )

    def _take_cached(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """Take the best fit, and only the best: if that does not suit, no other is tried [get_free_block]."""
        block = pool.smallest_of(stream, size)
        if block is None or not self.settings.suits(size, block.size):
            return None
        pool.remove(block)
        return block

    def _take_new(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """Ask the device for a segment; where it has no room, again after each way to give something back [malloc]."""
        block = self._new_segment(pool, stream, size)
        if block is None and self._release_oversize(pool, stream, size):
            block = self._new_segment(pool, stream, size)
        if block is None:
            self._release_cached()
            self._counters.num_alloc_retries += 1
            block = self._new_segment(pool, stream, size)
        return block

    def _new_segment(self, pool: BlockPool, stream: int, size: int) -> Block | None:
        """Return the one block of a new segment, in no pool yet [alloc_block]."""
        nbytes = self.settings.segment_bytes(size)
        if self._limit is not None and self.reserved_bytes + nbytes > self._limit:
            return None
        address = self._memory.reserve(nbytes)
        if address is None:
            return None
        rank = self._segments_created if self.settings.ties == "segment" else 0
        segment = Segment(pool=pool, stream=stream, address=address, size=nbytes, rank=rank)
        self._segments[address] = segment
        self._segments_created += 1
        self._counters.num_device_alloc += 1
        self._segments_changed(segment, 1)
        return segment.first

    def _hand_out(self, block: Block, size: int, requested: int) -> int:
        """Make `block` an allocated one, its rest split off where the rules say so [alloc_found_block]."""
        pool = block.segment.pool
        split_count, split_bytes = (-1, -block.size) if block.is_split else (0, 0)
        if self.settings.splits(size, block.size):
            rest = block.split(size)
            pool.add(rest)
            split_count += 1
            split_bytes += rest.size
        block.allocated, block.requested = True, requested
        self._allocated[block.address] = block
        for tallies in (self._counters.all, pool.tallies):
            tallies.splits_changed(split_count, split_bytes)
            tallies.blocks_changed(1, block.size, requested)
        if self.settings.is_oversize(block.size):
            self._counters.oversize_allocations.add(1)
        return block.address

    def _join_neighbours(self, block: Block) -> tuple[Block, int]:
        """Return the free block that `block` became a part of, and how many it absorbed [try_merge_blocks]."""
        pool, absorbed = block.segment.pool, 0
        previous = block.previous
        if previous is not None and not previous.allocated:
            pool.remove(previous)
            previous.absorb(block)
            block, absorbed = previous, 1
        following = block.following
        if following is not None and not following.allocated:
            pool.remove(following)
            block.absorb(following)
            absorbed += 1
        return block, absorbed

    def _release_cached(self) -> None:
        """Give every unsplit free block back to the device [release_cached_blocks]."""
        self._counters.num_sync_all_streams += 1
        for pool in (self._large, self._small):
            for block in pool:
                if not block.is_split:
                    self._release(block)

    def _release_oversize(self, pool: BlockPool, stream: int, size: int) -> bool:
        """With a max_split_size: give back just enough oversize blocks for the request; say whether it was enough.

        [release_available_cached_blocks]
        """
        if self.settings.max_split_bytes is None:
            return False
        wanted = max(size, self.settings.max_split_bytes)
        block = pool.smallest_of(stream, wanted)
        if block is not None:
            self._release(block)
            return True
        released = 0
        for smaller in pool.largest_below(stream, wanted):
            if released >= wanted or not self.settings.is_oversize(smaller.size):
                break
            released += smaller.size
            self._release(smaller)
        return released >= wanted

    def _release(self, block: Block) -> None:
        """Give the segment of a free, unsplit block back to the device [release_block]."""
        segment = block.segment
        segment.pool.remove(block)
        del self._segments[segment.address]
        self._memory.release(segment.address)
        self._counters.num_device_free += 1
        self._segments_changed(segment, -1)

    def _segments_changed(self, segment: Segment, count: int) -> None:
        for tallies in (self._counters.all, segment.pool.tallies):
            tallies.segments_changed(count, count * segment.size)
        if self.settings.is_oversize(segment.size):
            self._counters.oversize_segments.add(count)

    def _out_of_memory(self, requested: int, size: int) -> AllocationError:
        nbytes, hint = self.settings.segment_bytes(size), ""
        if self._limit is not None and self.reserved_bytes + nbytes > self._limit:
            hint = f"the memory fraction {self.settings.memory_fraction:g} allows {self._limit} reserved bytes"
        return AllocationError(
            requested_bytes=requested, segment_bytes=nbytes, free_bytes=self._memory.free_bytes, hint=hint
        )

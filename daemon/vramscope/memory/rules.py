"""Which sizes the caching allocator works with: blocks, segments, and when a block is split. All sizes are bytes.

The names in brackets are those of CUDACachingAllocator.cpp (torch 2.14).
"""

from dataclasses import dataclass
from typing import Literal

MIB = 1 << 20
BLOCK_BYTES = 512  # every block is a multiple of this [kMinBlockSize]
SMALL_BYTES = 1 * MIB  # the largest block of the small pool [kSmallSize]
SMALL_SEGMENT_BYTES = 2 * MIB  # a segment of the small pool [kSmallBuffer]
LARGE_SEGMENT_BYTES = 20 * MIB  # a segment that large blocks share [kLargeBuffer]
OWN_SEGMENT_BYTES = 10 * MIB  # a block from this size on gets a segment of its own [kMinLargeAlloc] …
OWN_SEGMENT_STEP_BYTES = 2 * MIB  # … rounded up to this [kRoundLarge]


def round_up(nbytes: int, step: int) -> int:
    """Return the lowest multiple of `step` that is not below `nbytes`."""
    return -(-nbytes // step) * step


@dataclass(frozen=True, kw_only=True)
class AllocatorSettings:
    """What PYTORCH_CUDA_ALLOC_CONF and set_per_process_memory_fraction change, and the rules that follow from it.

    `max_split_bytes` None: blocks of any size are split. `memory_fraction` None: all of the device may be reserved.
    `ties` says which of two free blocks of one size goes first: that of the older segment, or, in older torch, that
    at the lower address. Raises ValueError for a setting under which the rules contradict each other.
    https://docs.pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-cuda-alloc-conf
    """

    large_segment_bytes: int = LARGE_SEGMENT_BYTES
    max_split_bytes: int | None = None
    max_non_split_rounding_bytes: int = LARGE_SEGMENT_BYTES
    memory_fraction: float | None = None
    ties: Literal["segment", "address"] = "segment"

    def __post_init__(self) -> None:
        if self.large_segment_bytes < OWN_SEGMENT_BYTES:
            raise ValueError(f"large_segment_bytes must be at least {OWN_SEGMENT_BYTES}")
        if self.max_split_bytes is not None and self.max_split_bytes <= self.large_segment_bytes:
            raise ValueError(f"max_split_bytes must be above large_segment_bytes, {self.large_segment_bytes}")
        if self.memory_fraction is not None and not 0 <= self.memory_fraction <= 1:
            raise ValueError("memory_fraction must be between 0 and 1")

    def block_bytes(self, requested_bytes: int) -> int:
        """Return the size of block that a request asks for [round_size]."""
        return max(BLOCK_BYTES, round_up(requested_bytes, BLOCK_BYTES))

    def is_small(self, size: int) -> bool:
        """Whether a block of `size` comes from the small pool [get_pool]."""
        return size <= SMALL_BYTES

    def segment_bytes(self, size: int) -> int:
        """Return the size of a new segment for a block of `size` [get_allocation_size]."""
        if self.is_small(size):
            return SMALL_SEGMENT_BYTES
        if size < OWN_SEGMENT_BYTES:
            return self.large_segment_bytes
        return round_up(size, OWN_SEGMENT_STEP_BYTES)

    def is_oversize(self, size: int) -> bool:
        """Whether a block of `size` is too large to be split."""
        return self.max_split_bytes is not None and size >= self.max_split_bytes

    def suits(self, size: int, found_bytes: int) -> bool:
        """Whether a free block of `found_bytes` may serve a request of `size` [get_free_block].

        Oversize blocks are kept for oversize requests, and those must not waste too much of them.
        """
        if self.is_oversize(size):
            return found_bytes < size + self.max_non_split_rounding_bytes
        return not self.is_oversize(found_bytes)

    def splits(self, size: int, found_bytes: int) -> bool:
        """Whether the rest of a block of `found_bytes` stays free, or is handed out with `size` [should_split].

        A block is in the pool that its segment was made for, and a request never crosses pools, so the request's
        size tells the pool.
        """
        rest_bytes = found_bytes - size
        if self.is_small(size):
            return rest_bytes >= BLOCK_BYTES
        return rest_bytes > SMALL_BYTES and not self.is_oversize(size)

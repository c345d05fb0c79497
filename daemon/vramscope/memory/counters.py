"""The statistics of the caching allocator, by the names that torch.cuda.memory_stats gives them."""

from collections.abc import Iterator

POOLED = (
    "allocation",
    "segment",
    "active",
    "inactive_split",
    "allocated_bytes",
    "reserved_bytes",
    "active_bytes",
    "inactive_split_bytes",
    "requested_bytes",
)


class Tally:
    """One quantity over time: its current value, its peak, and the sums of its increases and decreases."""

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def add(self, amount: int) -> None:
        """Change the current value by `amount`, which may be negative."""
        self.current += amount
        if amount < 0:
            self.freed -= amount
            return
        self.allocated += amount
        if self.current > self.peak:  # noqa: PLR1730 - max() is slower, and this runs up to ten times an allocation
            self.peak = self.current

    def items(self, name: str) -> Iterator[tuple[str, int]]:
        yield f"{name}.allocated", self.allocated
        yield f"{name}.current", self.current
        yield f"{name}.freed", self.freed
        yield f"{name}.peak", self.peak


class PoolTallies:
    """The statistics of one pool, or of all pools together; a method for each thing that happens to a pool."""

    __slots__ = POOLED

    def __init__(self) -> None:
        self.allocation = Tally()
        self.segment = Tally()
        self.inactive_split = Tally()
        self.allocated_bytes = Tally()
        # A block is active until no stream uses it any more; without a second stream, that is until it is freed.
        self.active, self.active_bytes = self.allocation, self.allocated_bytes
        self.reserved_bytes = Tally()
        self.inactive_split_bytes = Tally()
        self.requested_bytes = Tally()

    def segments_changed(self, count: int, nbytes: int) -> None:
        self.segment.add(count)
        self.reserved_bytes.add(nbytes)

    def blocks_changed(self, count: int, block_bytes: int, requested_bytes: int) -> None:
        """Blocks were handed out (positive) or taken back. The block counts, not the request."""
        self.allocation.add(count)
        self.allocated_bytes.add(block_bytes)
        self.requested_bytes.add(requested_bytes)

    def splits_changed(self, count: int, nbytes: int) -> None:
        """Free blocks that have a neighbour in their segment, and so cannot be released, came or went."""
        self.inactive_split.add(count)
        self.inactive_split_bytes.add(nbytes)

    def by_name(self) -> Iterator[tuple[str, Tally]]:
        for name in POOLED:
            yield name, getattr(self, name)


class AllocatorCounters:
    """All statistics of one allocator. "Oversize" is what is not below max_split_size."""

    def __init__(self) -> None:
        self.all, self.small_pool, self.large_pool = PoolTallies(), PoolTallies(), PoolTallies()
        self.oversize_allocations, self.oversize_segments = Tally(), Tally()
        self.num_alloc_retries = 0
        self.num_device_alloc = 0
        self.num_device_free = 0
        self.num_ooms = 0
        self.num_sync_all_streams = 0

    def reset_peaks(self) -> None:
        """Let every peak start again from the current value (torch.cuda.reset_peak_memory_stats)."""
        for _, tally in self._tallies():
            tally.peak = tally.current

    def as_dict(self) -> dict[str, int]:
        """Flat names such as "allocated_bytes.all.current"; byte counts are bytes, all others are counts."""
        flat = {
            "num_alloc_retries": self.num_alloc_retries,
            "num_device_alloc": self.num_device_alloc,
            "num_device_free": self.num_device_free,
            "num_oom_rejections": 0,  # only torch's throw_on_cudamalloc_oom counts here, which is not modelled
            "num_ooms": self.num_ooms,
            "num_sync_all_streams": self.num_sync_all_streams,
        }
        for name, tally in self._tallies():
            flat.update(tally.items(name))
        return dict(sorted(flat.items()))

    def _tallies(self) -> Iterator[tuple[str, Tally]]:
        for pool in ("all", "small_pool", "large_pool"):
            tallies: PoolTallies = getattr(self, pool)
            for name, tally in tallies.by_name():
                yield f"{name}.{pool}", tally
        yield "oversize_allocations", self.oversize_allocations
        yield "oversize_segments", self.oversize_segments

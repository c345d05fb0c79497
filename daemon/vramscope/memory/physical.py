"""The memory of one device as the driver sees it: a capacity, what others hold of it, and what it gave out."""

from bisect import bisect_left, insort
from dataclasses import dataclass, field

from vramscope.memory.rules import round_up

GRANULARITY_BYTES = 2 << 20  # cudaMalloc maps whole pages of 2 MiB
FIRST_ADDRESS = 0x7F00_0000_0000  # where it starts is free to choose; CUDA never hands out the address 0


@dataclass
class PhysicalMemory:
    """What cudaMalloc gives out. All sizes are bytes.

    `context_bytes` (this process's CUDA context) and `other_bytes` (what other processes and the driver hold) may be
    set at any time: a context opens late, and neighbours come and go. They never take back what was given out.
    """

    total_bytes: int
    context_bytes: int = field(default=0, kw_only=True)
    other_bytes: int = field(default=0, kw_only=True)
    _ranges: list[tuple[int, int]] = field(default_factory=list, init=False, repr=False)  # (address, bytes), sorted
    _given_bytes: int = field(default=0, init=False)

    @property
    def given_bytes(self) -> int:
        """Bytes that are given out now, in whole pages."""
        return self._given_bytes

    @property
    def free_bytes(self) -> int:
        return max(0, self.total_bytes - self.context_bytes - self.other_bytes - self._given_bytes)

    @property
    def used_bytes(self) -> int:
        """What is not free, so that used and free always sum to the total."""
        return self.total_bytes - self.free_bytes

    def reserve(self, nbytes: int) -> int | None:
        """Give out whole pages at the lowest address with room for `nbytes`; None where that much is not free.

        The driver's own choice of addresses is not documented, and torch's choices do not depend on it.
        """
        size = round_up(nbytes, GRANULARITY_BYTES)
        if size > self.free_bytes:
            return None
        address = self._lowest_gap(size)
        insort(self._ranges, (address, size))
        self._given_bytes += size
        return address

    def release(self, address: int) -> None:
        """Take back what `reserve` gave out at `address`. Raises KeyError where nothing was."""
        index = bisect_left(self._ranges, (address, 0))
        if index == len(self._ranges) or self._ranges[index][0] != address:
            raise KeyError(address)
        self._given_bytes -= self._ranges.pop(index)[1]

    def _lowest_gap(self, size: int) -> int:
        candidate = FIRST_ADDRESS
        for address, taken in self._ranges:
            if address - candidate >= size:
                break
            candidate = address + taken
        return candidate

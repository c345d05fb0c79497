"""The allocator's model against what the real one did, and proof that the recordings would notice a broken rule."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from vramscope.memory import rules
from vramscope.memory.allocator import AllocationError, AllocatorSettings, CachingAllocator, PhysicalMemory

GOLDEN = Path(__file__).parent / "golden"
MIB = 1 << 20
CONTEXT_BYTES = 32 * MIB
MODEL_DEVICE_BYTES = 142_336 * MIB

with gzip.open(GOLDEN / "traces.json.gz", "rt") as recorded:
    TRACES = json.load(recorded)
MODELS = json.loads((GOLDEN / "models.json").read_text())


class NumberedMemory(PhysicalMemory):
    """Numbers the segments in the order of their creation, as the recordings do."""

    def __init__(self, total_bytes):
        super().__init__(total_bytes, context_bytes=CONTEXT_BYTES)
        self.created = 0
        self.numbers = {}

    def reserve(self, nbytes):
        address = super().reserve(nbytes)
        if address is not None:
            self.numbers[address] = self.created
            self.created += 1
        return address

    def release(self, address):
        super().release(address)
        del self.numbers[address]

    def locate(self, pointer):
        """Number of the pointer's segment, and its offset there."""
        start = max(address for address in self.numbers if address <= pointer)
        return [self.numbers[start], pointer - start]


def columns(allocator, memory):
    seen = allocator.memory()
    return [
        seen.allocated_bytes,
        seen.reserved_bytes,
        seen.active_bytes,
        seen.inactive_split_bytes,
        seen.requested_bytes,
        len(memory.numbers),
        seen.ooms,
        seen.alloc_retries,
    ]


def replay(trace, make):
    """Yield what the allocator shows after each operation of the trace, and its statistics at the end."""
    memory = NumberedMemory(trace["capacity_mib"] * MIB + CONTEXT_BYTES)
    allocator = make(memory)
    live = {}
    for operation, *arguments in trace["ops"]:
        where = None
        if operation == "a":
            key, nbytes = arguments
            try:
                live[key] = allocator.allocate(nbytes)
                where = memory.locate(live[key])
            except AllocationError:
                where = "oom"
        elif operation == "f":
            allocator.free(live.pop(arguments[0], None))
        else:
            allocator.empty_cache()
        yield [where, *columns(allocator, memory)]
    yield allocator.statistics()


def notices(trace, make):
    """Whether the allocator that `make` returns does anything else than the real one."""
    expected = [*trace["rows"], trace["final"]]
    return any(seen != recorded for seen, recorded in zip(replay(trace, make), expected, strict=True))


@pytest.mark.parametrize("trace", TRACES, ids=lambda trace: trace["name"])
def test_every_operation_and_statistic_of_a_trace_is_exact(trace):
    *rows, final = replay(trace, CachingAllocator)
    assert rows == trace["rows"]
    assert final == trace["final"]


@pytest.mark.parametrize("model", MODELS)
def test_moving_a_model_to_the_device_and_back_is_exact(model):
    memory = NumberedMemory(MODEL_DEVICE_BYTES)
    allocator = CachingAllocator(memory)
    pointers = []
    for phase, *expected in MODELS[model]["phases"]:
        if phase == "cuda":
            pointers = [allocator.allocate(nbytes) for *_, nbytes in MODELS[model]["order"]]
        elif phase == "cpu":
            for pointer in pointers:
                allocator.free(pointer)
        else:
            allocator.empty_cache()
        assert [phase, *columns(allocator, memory)] == [phase, *expected]


def test_the_recordings_are_all_there():
    assert len(TRACES) == 200
    assert sum(len(trace["ops"]) for trace in TRACES) == 52_354
    assert len(MODELS) == 11


class LargeSplitFromOneMebibyte(AllocatorSettings):
    def splits(self, size, found_bytes):
        return found_bytes - size >= (rules.BLOCK_BYTES if self.is_small(size) else MIB)


class LargeSplitAsSmall(AllocatorSettings):
    def splits(self, size, found_bytes):
        return found_bytes - size >= rules.BLOCK_BYTES


class SmallSplitAboveOneBlock(AllocatorSettings):
    def splits(self, size, found_bytes):
        return found_bytes - size > (rules.BLOCK_BYTES if self.is_small(size) else MIB)


class TenMebibytesShareASegment(AllocatorSettings):
    def segment_bytes(self, size):
        return self.large_segment_bytes if size == rules.OWN_SEGMENT_BYTES else super().segment_bytes(size)


class OwnSegmentsAreNotRounded(AllocatorSettings):
    def segment_bytes(self, size):
        return size if size >= rules.OWN_SEGMENT_BYTES else super().segment_bytes(size)


class OneMebibyteIsLarge(AllocatorSettings):
    def is_small(self, size):
        return size < rules.SMALL_BYTES


class BlocksOf256Bytes(AllocatorSettings):
    def block_bytes(self, requested_bytes):
        return rules.round_up(requested_bytes, 256)


class NoJoining(CachingAllocator):
    def _join_neighbours(self, block):
        return block, 0


class JoinsTheNextOnly(CachingAllocator):
    def _join_neighbours(self, block):
        following = block.following
        if following is None or following.allocated:
            return block, 0
        block.segment.pool.remove(following)
        block.absorb(following)
        return block, 1


class WorstFit(CachingAllocator):
    def _take_cached(self, pool, stream, size):
        block = max((free for free in pool if free.segment.stream == stream), key=lambda free: free.size, default=None)
        if block is None or block.size < size:
            return None
        pool.remove(block)
        return block


class KeepsTheCacheWhenFull(CachingAllocator):
    def _take_new(self, pool, stream, size):
        return self._new_segment(pool, stream, size)


class EmptiesTheSmallPoolOnly(CachingAllocator):
    def _release_cached(self):
        self._counters.num_sync_all_streams += 1
        for block in self._small:
            if not block.is_split:
                self._release(block)


class RequestsCountInsteadOfBlocks(CachingAllocator):
    def memory(self):
        seen = super().memory()
        return replace(seen, allocated_bytes=seen.requested_bytes)


BROKEN_SETTINGS = {
    "ties_by_address": AllocatorSettings(ties="address"),
    "shared_segments_of_22_MiB": AllocatorSettings(large_segment_bytes=22 * MIB),
} | {
    kind.__name__: kind()
    for kind in (
        LargeSplitFromOneMebibyte,
        LargeSplitAsSmall,
        SmallSplitAboveOneBlock,
        TenMebibytesShareASegment,
        OwnSegmentsAreNotRounded,
        OneMebibyteIsLarge,
        BlocksOf256Bytes,
    )
}
BROKEN_ALLOCATORS = (
    NoJoining,
    JoinsTheNextOnly,
    WorstFit,
    KeepsTheCacheWhenFull,
    EmptiesTheSmallPoolOnly,
    RequestsCountInsteadOfBlocks,
)


@pytest.mark.parametrize("name", BROKEN_SETTINGS)
def test_the_recordings_notice_a_broken_rule_of_sizes(name):
    assert any(notices(trace, lambda memory: CachingAllocator(memory, BROKEN_SETTINGS[name])) for trace in TRACES)


@pytest.mark.parametrize("broken", BROKEN_ALLOCATORS)
def test_the_recordings_notice_a_broken_rule_of_the_allocator(broken):
    assert any(notices(trace, broken) for trace in TRACES)

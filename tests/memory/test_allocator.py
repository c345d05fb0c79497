import json
import random
from contextlib import suppress
from pathlib import Path

import pytest

from vramscope.errors import ExitCode, OutOfMemoryError
from vramscope.memory.allocator import (
    AllocationError,
    AllocatorSettings,
    CachingAllocator,
    PhysicalMemory,
    UnknownPointerError,
)

MIB = 1 << 20
GIB = 1 << 30


@pytest.fixture
def memory():
    return PhysicalMemory(100 * MIB)


@pytest.fixture
def allocator(memory):
    return CachingAllocator(memory)


def test_qwen_in_float16_shows_the_published_950_mib_for_942_mib_of_parameters():
    models = json.loads((Path(__file__).parent / "golden" / "models.json").read_text())
    allocator = CachingAllocator(PhysicalMemory(12 * GIB))
    pointers = [allocator.allocate(nbytes) for *_, nbytes in models["qwen2.5-0.5b"]["order"]]
    assert allocator.memory().requested_bytes == 988_065_792
    assert allocator.allocated_bytes == 996_322_304
    assert allocator.reserved_bytes == 1_040_187_392
    for pointer in pointers:
        allocator.free(pointer)
    assert (allocator.allocated_bytes, allocator.reserved_bytes) == (0, 1_040_187_392)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 0


def test_zero_bytes_need_no_block(allocator):
    assert allocator.allocate(0) is None
    allocator.free(None)
    assert allocator.statistics()["allocation.all.allocated"] == 0


def test_a_negative_size_is_refused(allocator):
    with pytest.raises(ValueError, match="-1 bytes"):
        allocator.allocate(-1)


def test_a_rest_of_up_to_1_mib_is_handed_out_and_counted(allocator):
    allocator.allocate(19 * MIB)
    assert allocator.allocated_bytes == 20 * MIB
    assert allocator.memory().requested_bytes == 19 * MIB


def test_an_out_of_memory_gives_the_cache_back_first_and_counts_retries_and_errors(allocator, memory):
    kept, cached = allocator.allocate(40 * MIB), allocator.allocate(50 * MIB)
    allocator.free(cached)
    assert memory.free_bytes == 10 * MIB
    assert allocator.allocate(60 * MIB) is not None
    assert (allocator.memory().alloc_retries, allocator.memory().ooms) == (1, 0)
    with pytest.raises(AllocationError) as caught:
        allocator.allocate(3 * MIB)
    assert (allocator.memory().alloc_retries, allocator.memory().ooms) == (2, 1)
    assert (caught.value.requested_bytes, caught.value.segment_bytes, caught.value.free_bytes) == (3 * MIB, 20 * MIB, 0)
    allocator.free(kept)
    assert allocator.allocated_bytes == 60 * MIB


def test_an_out_of_memory_leaves_the_cache_released(allocator, memory):
    allocator.free(allocator.allocate(50 * MIB))
    with pytest.raises(OutOfMemoryError, match=f"a request of {200 * MIB} bytes .* {100 * MIB} bytes are free"):
        allocator.allocate(200 * MIB)
    assert memory.free_bytes == 100 * MIB


def test_other_processes_take_the_room_that_an_allocation_needs(allocator, memory):
    memory.other_bytes = 90 * MIB
    with pytest.raises(AllocationError):
        allocator.allocate(2 * MIB)
    memory.other_bytes = 0
    assert allocator.allocate(2 * MIB) is not None


def test_the_memory_fraction_limits_what_is_reserved(memory):
    allocator = CachingAllocator(memory, AllocatorSettings(memory_fraction=0.5))
    allocator.allocate(50 * MIB)
    with pytest.raises(AllocationError, match=r"memory fraction 0\.5 allows 52428800 reserved bytes") as caught:
        allocator.allocate(1)
    assert caught.value.free_bytes == 50 * MIB


def test_with_max_split_only_as_many_oversize_blocks_as_needed_are_released(memory):
    allocator = CachingAllocator(memory, AllocatorSettings(max_split_bytes=24 * MIB))
    for pointer in [allocator.allocate(nbytes * MIB) for nbytes in (24, 26, 30)]:
        allocator.free(pointer)
    allocator.allocate(52 * MIB)
    seen = allocator.statistics()
    assert (seen["oversize_segments.freed"], seen["oversize_segments.current"]) == (2, 2)
    assert seen["num_alloc_retries"] == 0
    assert seen["max_split_size"] == 24 * MIB


def test_with_max_split_an_oversize_block_is_handed_out_whole_or_not_at_all(memory):
    allocator = CachingAllocator(memory, AllocatorSettings(max_split_bytes=24 * MIB))
    allocator.free(allocator.allocate(40 * MIB))
    allocator.allocate(12 * MIB)
    assert allocator.reserved_bytes == 52 * MIB
    allocator.allocate(30 * MIB)
    assert allocator.allocated_bytes == 52 * MIB


def test_blocks_of_one_stream_do_not_serve_another(allocator):
    allocator.free(allocator.allocate(512, stream=1))
    allocator.allocate(512, stream=2)
    assert allocator.statistics()["segment.small_pool.current"] == 2


def test_a_reset_peak_starts_again_from_what_is_live(allocator):
    kept, dropped = allocator.allocate(10 * MIB), allocator.allocate(30 * MIB)
    allocator.free(dropped)
    assert allocator.memory().allocated_peak_bytes == 40 * MIB
    allocator.reset_peak()
    assert allocator.memory().allocated_peak_bytes == 10 * MIB
    assert allocator.memory().reserved_peak_bytes == 40 * MIB
    assert allocator.statistics()["allocated_bytes.all.allocated"] == 40 * MIB
    allocator.free(kept)


def test_a_peak_between_two_samples_is_not_missed():
    """What is looked at once a second sees 1 GiB, before and after a reset."""
    allocator = CachingAllocator(PhysicalMemory(4 * GIB))

    def peak_after(short_bytes):
        allocator.free(allocator.allocate(short_bytes))
        assert allocator.allocated_bytes == GIB
        return allocator.memory().allocated_peak_bytes

    kept = allocator.allocate(GIB)
    assert peak_after(GIB // 2) == GIB + GIB // 2
    allocator.reset_peak()
    assert peak_after(GIB // 4) == GIB + GIB // 4
    allocator.free(kept)
    assert allocator.allocated_bytes == 0


def test_emptying_the_cache_keeps_a_free_block_beside_a_live_one(allocator):
    first = allocator.allocate(2 * MIB)
    allocator.allocate(2 * MIB)
    allocator.free(first)
    allocator.empty_cache()
    assert allocator.reserved_bytes == 20 * MIB
    assert allocator.memory().inactive_split_bytes == 18 * MIB


def test_freeing_twice_or_elsewhere_is_an_error_that_names_the_pointer(allocator):
    pointer = allocator.allocate(512)
    allocator.free(pointer)
    with pytest.raises(UnknownPointerError, match=f"free of {pointer:#x}: no allocated block starts there") as caught:
        allocator.free(pointer)
    assert caught.value.exit_code is ExitCode.BUG
    assert allocator.allocated_bytes == 0


def test_segments_show_each_block_by_address(allocator):
    pointer = allocator.allocate(1000, stream=3)
    (segment,) = allocator.segments()
    live, free = segment.blocks
    assert (segment.address, segment.size_bytes, segment.small, segment.stream) == (pointer, 2 * MIB, True, 3)
    assert (live.address, live.size_bytes, live.requested_bytes, live.allocated) == (pointer, 1024, 1000, True)
    assert (free.address, free.size_bytes, free.allocated) == (pointer + 1024, 2 * MIB - 1024, False)


@pytest.mark.parametrize(
    "settings",
    [
        AllocatorSettings(),
        AllocatorSettings(max_split_bytes=24 * MIB),
        AllocatorSettings(memory_fraction=0.6, ties="address"),
    ],
)
def test_blocks_always_fill_their_segments_and_everything_can_be_given_back(settings):
    draw = random.Random(7)  # noqa: S311 - a repeatable sequence, not a secret
    memory = PhysicalMemory(200 * MIB)
    allocator = CachingAllocator(memory, settings)
    live = []
    for _ in range(400):
        if live and draw.random() < 0.45:
            allocator.free(live.pop(draw.randrange(len(live))))
            continue
        with suppress(AllocationError):
            nbytes = draw.randint(1, draw.choice([4096, 2 * MIB, 60 * MIB]))
            live.append(allocator.allocate(nbytes, stream=draw.randrange(2)))
        blocks = [block for segment in allocator.segments() for block in segment.blocks]
        assert sum(block.size_bytes for block in blocks) == allocator.reserved_bytes == memory.given_bytes
        assert sum(block.size_bytes for block in blocks if block.allocated) == allocator.allocated_bytes
        assert {block.address for block in blocks if block.allocated} == set(live)
    assert allocator.memory().ooms > 0
    for pointer in live:
        allocator.free(pointer)
    allocator.empty_cache()
    assert (allocator.allocated_bytes, allocator.reserved_bytes, memory.free_bytes) == (0, 0, 200 * MIB)

import pytest

from vramscope.memory.rules import AllocatorSettings

MIB = 1 << 20


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"large_segment_bytes": 8 * MIB}, "at least 10485760"),
        ({"max_split_bytes": 20 * MIB}, "above large_segment_bytes, 20971520"),
        ({"memory_fraction": 1.5}, "between 0 and 1"),
    ],
)
def test_settings_that_contradict_the_rules_are_refused(wrong, message):
    with pytest.raises(ValueError, match=message):
        AllocatorSettings(**wrong)


@pytest.mark.parametrize(("requested", "block"), [(1, 512), (512, 512), (513, 1024), (MIB, MIB)])
def test_blocks_are_multiples_of_512_bytes(requested, block):
    assert AllocatorSettings().block_bytes(requested) == block


@pytest.mark.parametrize(
    ("block", "segment"),
    [
        (512, 2 * MIB),
        (MIB, 2 * MIB),
        (MIB + 512, 20 * MIB),
        (10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB),
        (10 * MIB + 512, 12 * MIB),
    ],
)
def test_a_segment_is_small_shared_or_the_blocks_own(block, segment):
    assert AllocatorSettings().segment_bytes(block) == segment


@pytest.mark.parametrize(
    ("size", "found", "split"),
    [
        (512, 1024, True),
        (MIB, MIB, False),
        (2 * MIB, 3 * MIB, False),
        (2 * MIB, 3 * MIB + 512, True),
    ],
)
def test_a_rest_stays_free_from_512_bytes_on_in_the_small_pool_and_above_1_mib_in_the_large(size, found, split):
    assert AllocatorSettings().splits(size, found) is split


def test_oversize_blocks_serve_only_oversize_requests_of_about_their_size():
    settings = AllocatorSettings(max_split_bytes=64 * MIB, max_non_split_rounding_bytes=20 * MIB)
    assert not settings.suits(63 * MIB, 64 * MIB)
    assert settings.suits(64 * MIB, 84 * MIB - 512)
    assert not settings.suits(64 * MIB, 84 * MIB)
    assert not settings.splits(64 * MIB, 83 * MIB)

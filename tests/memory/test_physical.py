import pytest

from vramscope.memory.physical import PhysicalMemory

MIB = 1 << 20


def test_used_and_free_sum_to_the_total():
    memory = PhysicalMemory(100 * MIB, context_bytes=10 * MIB, other_bytes=5 * MIB)
    memory.reserve(20 * MIB)
    assert memory.used_bytes == 35 * MIB
    assert memory.free_bytes == 65 * MIB


def test_pages_are_given_whole():
    memory = PhysicalMemory(100 * MIB)
    memory.reserve(1)
    assert memory.given_bytes == 2 * MIB


def test_the_lowest_gap_with_room_is_given_first():
    memory = PhysicalMemory(100 * MIB)
    first, second, third = (memory.reserve(4 * MIB) for _ in range(3))
    memory.release(first)
    assert memory.reserve(6 * MIB) == third + 4 * MIB
    assert memory.reserve(2 * MIB) == first
    assert first < second < third


def test_the_address_zero_is_never_given():
    assert PhysicalMemory(2 * MIB).reserve(2 * MIB)


def test_a_context_and_other_processes_take_room_while_it_runs():
    memory = PhysicalMemory(10 * MIB)
    memory.context_bytes = 4 * MIB
    assert memory.reserve(8 * MIB) is None
    memory.other_bytes = 4 * MIB
    assert memory.free_bytes == 2 * MIB
    memory.other_bytes = 0
    assert memory.reserve(6 * MIB) is not None


def test_others_that_hold_more_than_there_is_leave_nothing_free():
    memory = PhysicalMemory(10 * MIB, other_bytes=12 * MIB)
    assert memory.free_bytes == 0
    assert memory.used_bytes == 10 * MIB


def test_releasing_what_was_not_given_is_an_error():
    with pytest.raises(KeyError):
        PhysicalMemory(10 * MIB).release(0)

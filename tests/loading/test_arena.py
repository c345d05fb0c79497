from pathlib import Path

import pytest
import torch

from vramscope.loading.arena import HUGE_PAGE_BYTES, Arena
from vramscope.memory.resident import read_resident

HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")


def flags_of(address):
    """The kernel's flags for the mapping that holds `address` (VmFlags in proc_pid_smaps(5))."""
    inside = False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, _, rest = line.partition(" ")
        if "-" in first and not first.endswith(":"):
            start, end = (int(text, 16) for text in first.split("-"))
            inside = start <= address < end
        elif inside and first == "VmFlags:":
            return rest.split()
    pytest.fail("no mapping there")


@pytest.mark.parametrize("nbytes", [0, 1, HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 5])
def test_an_arena_is_zeros_and_aligned_to_huge_pages(nbytes):
    arena = Arena(nbytes).memory
    assert (arena.dtype, arena.shape) == (torch.uint8, (nbytes,))
    assert not arena.any()
    assert arena.data_ptr() % HUGE_PAGE_BYTES == 0 or not nbytes


@pytest.mark.skipif(not HUGE_PAGES.exists(), reason="this kernel has no transparent huge pages")
def test_an_arena_asks_for_huge_pages():
    assert "hg" in flags_of(Arena(HUGE_PAGE_BYTES).memory.data_ptr())


def test_an_arena_is_private_memory_of_the_process():
    assert "sh" not in flags_of(Arena(HUGE_PAGE_BYTES).memory.data_ptr())


def test_more_than_the_system_can_address_is_refused():
    with pytest.raises(MemoryError, match=rf"^the system has no {1 << 50} bytes for the weights: "):
        Arena(1 << 50)


def test_discarding_gives_whole_huge_pages_back_and_keeps_the_rest():
    arena = Arena(4 * HUGE_PAGE_BYTES)
    arena.memory.fill_(7)
    before = read_resident().anonymous_bytes
    page = HUGE_PAGE_BYTES
    assert arena.discard(0, 3 * page // 2) == page
    assert arena.discard(page, 2 * page - 1) == page
    assert arena.discard(page, 3 * page + 1) == 3 * page
    assert before - read_resident().anonymous_bytes >= 2 * page
    assert not arena.memory[: 3 * page].any()
    assert bool((arena.memory[3 * page :] == 7).all())


def test_memory_lives_as_long_as_a_view_of_it():
    view = Arena(HUGE_PAGE_BYTES).memory[5:10]
    view.fill_(3)
    assert view.tolist() == [3] * 5


def test_only_what_is_told_is_kept():
    page = HUGE_PAGE_BYTES
    arena = Arena(9 * page + 100)
    arena.memory.fill_(7)
    kept = [arena.memory[a:b] for a, b in ((7 * page + 5, 8 * page), (page - 1, page + 1), (3 * page, 3 * page))]
    before = read_resident().anonymous_bytes
    arena.keep_only([*kept, torch.ones(10)])
    assert before - read_resident().anonymous_bytes >= 4 * page
    assert all(bool((each == 7).all()) for each in kept)
    assert not arena.memory[2 * page : 7 * page].any()
    arena.keep_only([])
    assert not arena.memory[: 9 * page].any()


def test_what_lies_in_the_gaps_of_a_tensor_is_no_reason_to_lose_its_elements():
    page = HUGE_PAGE_BYTES
    arena = Arena(8 * page)
    arena.memory.fill_(7)
    columns = arena.memory.view(8, page)[:, :16]
    arena.keep_only([columns])
    assert bool((columns == 7).all())

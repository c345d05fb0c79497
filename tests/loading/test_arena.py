from pathlib import Path

import pytest
import torch

from vramscope.loading.arena import HUGE_PAGE_BYTES, allocate_arena

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
    arena = allocate_arena(nbytes)
    assert (arena.dtype, arena.shape) == (torch.uint8, (nbytes,))
    assert not arena.any()
    assert arena.data_ptr() % HUGE_PAGE_BYTES == 0 or not nbytes


@pytest.mark.skipif(not HUGE_PAGES.exists(), reason="this kernel has no transparent huge pages")
def test_an_arena_asks_for_huge_pages():
    assert "hg" in flags_of(allocate_arena(HUGE_PAGE_BYTES).data_ptr())


def test_an_arena_is_private_memory_of_the_process():
    assert "sh" not in flags_of(allocate_arena(HUGE_PAGE_BYTES).data_ptr())

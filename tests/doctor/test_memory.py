"""The checks of RAM, swap, huge pages, shared memory and limits."""

import pytest
from tests.memory.trees import limited_root

from vramscope.doctor import host_memory, huge_pages, limits, shared_memory, swap
from vramscope.doctor._frame import State

GIB = 1 << 30
INFINITE = limits.resource.RLIM_INFINITY


def test_the_limit_of_a_container_counts(machine):
    here = machine({"proc/meminfo": "MemTotal: 16350464 kB\nMemAvailable: 9000000 kB", "proc/self/cgroup": "0::/"})
    limited_root(here.sys / "fs/cgroup", 4 * GIB)
    assert host_memory.CHECK.look(here) == host_memory.Finding(
        state=State.OK, found="4.00 GiB available, of a limit of 4.00 GiB"
    )
    limited_root(here.sys / "fs/cgroup", GIB)
    assert host_memory.CHECK.look(here).state is State.WARNING


def test_what_cannot_be_told_is_a_warning(machine):
    assert host_memory.CHECK.look(machine({"proc/meminfo": ""})).state is State.WARNING


@pytest.mark.parametrize(
    ("total", "free", "state"), [(0, 0, State.OK), (1000, 900, State.OK), (1000, 500, State.WARNING)]
)
def test_swap_matters_once_it_is_used(machine, total, free, state):
    here = machine({"proc/meminfo": f"SwapTotal: {total} kB\nSwapFree: {free} kB"})
    assert swap.CHECK.look(here).state is state


@pytest.mark.parametrize(
    ("text", "state"),
    [
        ("always [madvise] never", State.OK),
        ("[always] madvise never", State.OK),
        ("always madvise [never]", State.NOTE),
        ("", State.NOTE),
    ],
)
def test_only_never_costs_a_load_its_huge_pages(machine, text, state):
    assert huge_pages.CHECK.look(machine({huge_pages.FILE: text})).state is state


def test_docker_s_shared_memory_is_small():
    assert shared_memory.judge(64 << 20).state is State.NOTE
    assert shared_memory.judge(8 * GIB).state is State.OK


@pytest.mark.parametrize(
    ("files", "locked", "state"),
    [
        (INFINITE, INFINITE, State.OK),
        (20_000, 8 << 20, State.NOTE),
        (512, INFINITE, State.WARNING),
        (20, INFINITE, State.PROBLEM),
    ],
)
def test_the_limits_of_a_process(files, locked, state):
    assert limits.judge(files, INFINITE, locked).state is state


def test_no_more_files_are_advised_than_may_be_had():
    assert "`ulimit -n 600`" in limits.judge(256, 600, INFINITE).advice

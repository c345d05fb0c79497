"""What a process may use of the host's memory, over trees of control groups as the kernel shows them."""

import sys
from pathlib import Path

import pytest

from vramscope.memory.host import HostMemory, oom_kills, read_host

from .trees import MEMINFO, Tree, write

TOTAL = 16_742_875_136
AVAILABLE = 9_216_000_000
WHOLE = HostMemory(limit_bytes=TOTAL, available_bytes=AVAILABLE)
UNKNOWN = HostMemory()
V1 = "11:cpu:/docker/abc\n4:memory:/docker/abc\n0::/"
NO_LIMIT = "9223372036854771712"
GIB = 1 << 30


def test_without_control_groups_it_is_the_whole_host(tmp_path):
    assert read_host(*Tree(tmp_path, "").places) == WHOLE


def test_a_machine_that_tells_nothing_is_unknown(tmp_path):
    assert read_host(tmp_path / "sys", tmp_path / "proc") == UNKNOWN


class TestVersion2:
    def test_page_cache_that_is_not_in_use_counts_as_left(self, tmp_path):
        """A raw usage of 96 % is a working set of 30 %."""
        meminfo = "MemTotal:       791948096 kB\nMemAvailable:   700000000 kB"
        tree = Tree(tmp_path, "0::/c1", meminfo).v2("c1", "10000000000", "9600000000", "6600000000")
        assert read_host(*tree.places) == HostMemory(limit_bytes=10_000_000_000, available_bytes=7_000_000_000)

    def test_a_working_set_is_never_below_nothing(self, tmp_path):
        """Usage and page cache are read one after the other, so the second may be larger."""
        tree = Tree(tmp_path, "0::/c1").v2("c1", str(GIB), "100", "200")
        assert read_host(*tree.places).available_bytes == GIB

    def test_a_group_above_its_limit_has_nothing_left(self, tmp_path):
        tree = Tree(tmp_path, "0::/c1").v2("c1", str(GIB), str(2 * GIB))
        assert read_host(*tree.places).available_bytes == 0

    @pytest.mark.parametrize("limit", ["max", str(TOTAL), str(TOTAL * 2), NO_LIMIT])
    def test_no_limit_is_the_whole_host(self, tmp_path, limit):
        assert read_host(*Tree(tmp_path, "0::/c1").v2("c1", limit).places) == WHOLE

    def test_a_limit_above_the_own_group_counts(self, tmp_path):
        tree = Tree(tmp_path, "0::/pods/pod7/c1").v2("pods/pod7/c1", "max", "500").v2("pods", "max", "900")
        tree.v2("pods/pod7", str(GIB), str(GIB // 4))
        assert read_host(*tree.places) == HostMemory(limit_bytes=GIB, available_bytes=GIB - GIB // 4)

    def test_the_smallest_limit_need_not_be_the_one_that_has_least_left(self, tmp_path):
        tree = Tree(tmp_path, "0::/pod/c1").v2("pod/c1", str(GIB), "0").v2("pod", str(2 * GIB), str(2 * GIB - 5))
        assert read_host(*tree.places) == HostMemory(limit_bytes=GIB, available_bytes=5)

    def test_a_host_that_has_less_left_than_the_group_may_take(self, tmp_path):
        tree = Tree(tmp_path, "0::/c1").v2("c1", str(10 * GIB), "0")
        assert read_host(*tree.places) == HostMemory(limit_bytes=10 * GIB, available_bytes=AVAILABLE)

    @pytest.mark.parametrize("path", ["/", "/docker/abc"])
    def test_a_container_sees_its_own_group_at_the_root(self, tmp_path, path):
        """With a namespace of its own, or with its group mounted there under a path that only the host has."""
        tree = Tree(tmp_path, f"0::{path}").v2("", str(GIB), "0")
        assert read_host(*tree.places) == HostMemory(limit_bytes=GIB, available_bytes=GIB)

    def test_a_group_without_the_memory_controller_limits_nothing(self, tmp_path):
        tree = Tree(tmp_path, "0::/user.slice/app").v2("user.slice", str(GIB), "0")
        write(tree.root, {"user.slice/app/cgroup.procs": "1"})
        assert read_host(*tree.places).limit_bytes == GIB

    def test_a_group_that_is_slowed_down_above_some_size_may_still_take_more(self, tmp_path):
        tree = Tree(tmp_path, "0::/c1").v2("c1", str(GIB), "0")
        write(tree.root, {"c1/memory.high": str(GIB // 2)})
        assert read_host(*tree.places) == HostMemory(limit_bytes=GIB, available_bytes=GIB)

    def test_a_group_outside_of_what_is_mounted_is_unknown(self, tmp_path):
        assert read_host(*Tree(tmp_path, "0::/../other").v2("other", str(GIB), "0").places) == UNKNOWN

    def test_hybrid_mount(self, tmp_path):
        tree = Tree(tmp_path, "9:name=systemd:/c1\n3:pids:/c1\n0::/c1")
        files = {"memory.max": str(GIB), "memory.current": "24", "memory.stat": "inactive_file 0"}
        write(tree.root / "unified/c1", files)
        assert read_host(*tree.places) == HostMemory(limit_bytes=GIB, available_bytes=GIB - 24)


class TestVersion1:
    def test_its_number_for_no_limit_is_the_whole_host(self, tmp_path):
        tree = Tree(tmp_path, V1).v1("docker/abc", NO_LIMIT, "900000000").v1("", NO_LIMIT)
        assert read_host(*tree.places) == WHOLE

    @pytest.mark.parametrize("page_bytes", [4096, 16384, 65536])
    def test_its_number_for_no_limit_follows_the_page_and_needs_no_total(self, tmp_path, page_bytes):
        no_limit = str((1 << 63) // page_bytes * page_bytes - page_bytes)
        tree = Tree(tmp_path, V1, meminfo="").v1("docker/abc", no_limit, "900000000")
        assert read_host(*tree.places) == UNKNOWN

    def test_limit_less_the_working_set_is_left(self, tmp_path):
        """900,000,000 bytes in use with 300,000,000 of idle page cache are a working set of 600,000,000."""
        stat = "cache 500000000\nrss 400000000\ntotal_inactive_file 300000000"
        tree = Tree(tmp_path, V1).v1("docker/abc", "1073741824", "900000000", stat).v1("", NO_LIMIT)
        left = 1_073_741_824 - 600_000_000
        assert read_host(*tree.places) == HostMemory(limit_bytes=1_073_741_824, available_bytes=left)

    def test_a_limit_above_the_mount_is_told_by_the_own_group(self, tmp_path):
        stat = f"hierarchical_memory_limit {GIB}\ntotal_inactive_file 0"
        tree = Tree(tmp_path, V1).v1("", NO_LIMIT, "1000", stat)
        assert read_host(*tree.places) == HostMemory(limit_bytes=GIB, available_bytes=GIB - 1000)

    def test_a_group_above_counts_unless_it_says_that_it_does_not(self, tmp_path):
        tree = Tree(tmp_path, V1).v1("docker/abc", NO_LIMIT, "0").v1("docker", str(GIB), "24")
        assert read_host(*tree.places) == HostMemory(limit_bytes=GIB, available_bytes=GIB - 24)
        write(tree.root, {"memory/docker/memory.use_hierarchy": "0"})
        assert read_host(*tree.places) == WHOLE

    def test_controllers_that_are_mounted_together(self, tmp_path):
        tree = Tree(tmp_path, "4:cpuset,memory:/c1")
        files = {
            "memory.limit_in_bytes": str(GIB),
            "memory.usage_in_bytes": "0",
            "memory.stat": "total_inactive_file 0",
        }
        write(tree.root / "cpuset,memory/c1", files)
        assert read_host(*tree.places).limit_bytes == GIB


GARBAGE = ["", "abc", "-1", "1.5", "0x10", "1 2", "\u0661", "\0", "MAX", "9" * 5000]


class TestWhatCannotBeUnderstood:
    @pytest.mark.parametrize("garbage", GARBAGE)
    def test_a_limit_is_unknown_and_never_0(self, tmp_path, garbage):
        assert read_host(*Tree(tmp_path, "0::/c1").v2("c1", garbage, "0").places) == UNKNOWN
        assert read_host(*Tree(tmp_path / "1", V1).v1("docker/abc", garbage, "0").places) == UNKNOWN

    @pytest.mark.parametrize("garbage", GARBAGE)
    def test_use_is_unknown_and_the_limit_stands(self, tmp_path, garbage):
        limit_alone = HostMemory(limit_bytes=GIB)
        assert read_host(*Tree(tmp_path, "0::/c1").v2("c1", str(GIB), garbage).places) == limit_alone
        assert read_host(*Tree(tmp_path / "1", "0::/c1").v2("c1", str(GIB), "5", garbage).places) == limit_alone

    @pytest.mark.parametrize("missing", ["memory.current", "memory.stat"])
    def test_use_that_is_not_told_is_unknown(self, tmp_path, missing):
        tree = Tree(tmp_path, "0::/c1").v2("c1", str(GIB), "5")
        (tree.root / "c1" / missing).unlink()
        assert read_host(*tree.places) == HostMemory(limit_bytes=GIB)

    @pytest.mark.parametrize(
        "line", ["MemTotal:", "MemTotal: x kB", "MemTotal: 5 MB", "MemTotal: 5", "MemTotal: -5 kB"]
    )
    def test_total(self, tmp_path, line):
        assert read_host(*Tree(tmp_path, "", f"{line}\nMemAvailable: 5 kB").places) == UNKNOWN

    def test_available(self, tmp_path):
        tree = Tree(tmp_path, "", MEMINFO.replace("9000000 kB", "?"))
        assert read_host(*tree.places) == HostMemory(limit_bytes=TOTAL)

    @pytest.mark.parametrize("text", ["nonsense", "4:memory", "::"])
    def test_membership(self, tmp_path, text):
        tree = Tree(tmp_path, text)
        assert read_host(*tree.places) in (UNKNOWN, WHOLE)
        assert oom_kills(*tree.places) is None

    def test_a_directory_where_a_file_should_be(self, tmp_path):
        tree = Tree(tmp_path, "0::/c1")
        (tree.root / "c1/memory.max").mkdir(parents=True)
        assert read_host(*tree.places) == UNKNOWN


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel of Linux")
def test_this_machine_tells_plausible_numbers():
    host = read_host()
    total = int(Path("/proc/meminfo").read_text().split()[1]) * 1024
    assert host.limit_bytes is not None
    assert host.available_bytes is not None
    assert 0 < host.available_bytes <= host.limit_bytes <= total


class TestKills:
    def test_version_2_counts_in_the_events_of_the_own_group(self, tmp_path):
        tree = Tree(tmp_path, "0::/pod/c1").v2("pod/c1", "max").v2("pod", "max")
        write(tree.root, {"pod/memory.events": "oom_kill 9", "pod/c1/memory.events": "low 0\noom 4\noom_kill 3"})
        assert oom_kills(*tree.places) == 3

    def test_version_1_counts_beside_its_switch(self, tmp_path):
        tree = Tree(tmp_path, V1).v1("docker/abc", NO_LIMIT)
        write(tree.root, {"memory/docker/abc/memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 2"})
        assert oom_kills(*tree.places) == 2

    def test_a_container_finds_its_own_count_at_the_root(self, tmp_path):
        tree = Tree(tmp_path, "0::/").v2("", "max")
        write(tree.root, {"memory.events": "oom_kill 1"})
        assert oom_kills(*tree.places) == 1

    @pytest.mark.parametrize("events", ["", "oom 4", "oom_kill", "oom_kill many"])
    def test_nobody_counts(self, tmp_path, events):
        tree = Tree(tmp_path, "0::/c1").v2("c1", "max")
        assert oom_kills(*tree.places) is None
        write(tree.root, {"c1/memory.events": events})
        assert oom_kills(*tree.places) is None

    def test_no_control_groups(self, tmp_path):
        assert oom_kills(*Tree(tmp_path, "").places) is None
        assert oom_kills(tmp_path / "no", tmp_path / "where") is None

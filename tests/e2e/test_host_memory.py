"""A daemon in control groups that a test made up: what it shows of the host's memory, and loads that do not fit."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.daemon import Daemon, wait_for
from tests.memory.trees import Tree, write

LIMIT_BYTES = 10_000_000
TINY_FLOAT32_BYTES = 139_840 * 4
LARGE = "MemTotal:       791948096 kB\nMemAvailable:   700000000 kB"
KILLS = "vramscope_host_oom_kills_total"
IDLE = "version: 1\nmodels: {}\nsteps: [{wait: 600s}]\n"
LOAD = """
version: 1
models:
  tiny: {source: "synthetic:tiny", dtype: float32}
repeat: forever
steps:
  - load: LOAD
  - {wait: 600s, name: loaded}
  - unload: tiny
"""


class Place:
    """Where a daemon looks for its control groups; they can change under it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._now = directory / "now"
        self._made = 0

    @property
    def options(self) -> list[object]:
        return [
            "--device",
            "simulated",
            "--cgroup-root",
            self._now / "sys/fs/cgroup",
            "--proc-root",
            self._now / "proc",
        ]

    def make(self, cgroup: str, **meminfo: str) -> Tree:
        """A machine on which the daemon's processes are in these control groups, from now on."""
        self._made += 1
        directory = self._directory / str(self._made)
        tree = Tree(directory, cgroup, **meminfo)
        link = self._directory / "next"
        link.symlink_to(directory)
        link.replace(self._now)
        return tree


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def version_1(place: Place, limit: str) -> Tree:
    stat = "cache 500000000\nrss 400000000\ntotal_inactive_file 300000000"
    tree = place.make("11:cpu:/docker/abc\n4:memory:/docker/abc\n0::/").v1("", "9223372036854771712")
    return tree.v1("docker/abc", limit, "900000000", stat)


def test_limit_what_is_left_and_kills_are_shown_as_the_control_groups_tell_them(
    place: Place, start: Callable[..., Daemon], write_plan: Callable[[str], Path]
) -> None:
    version_1(place, "9223372036854771712")
    daemon = start(write_plan(IDLE), *place.options)

    def shows(limit_bytes: int | None, available_bytes: int | None, kills: int | None = None) -> None:
        names = "vramscope_host_memory_limit_bytes", "vramscope_host_memory_available_bytes", KILLS
        wanted = [limit_bytes, available_bytes, kills]
        wait_for(f"{wanted}", lambda: [daemon.total(name) for name in names] == wanted)

    shows(16_742_875_136, 9_216_000_000)
    version_1(place, "1073741824")
    shows(1 << 30, (1 << 30) - 600_000_000)
    tree = place.make("0::/c1", meminfo=LARGE).v2("c1", "10000000000", "9600000000", "6600000000")
    shows(10_000_000_000, 7_000_000_000)
    write(tree.root, {"c1/memory.events": "low 0\noom 2\noom_kill 2"})
    shows(10_000_000_000, 7_000_000_000, 2)
    write(tree.root, {"c1/memory.max": "many"})
    shows(None, None, 2)
    assert daemon.total("vramscope_collector_success", collector="host") == 1
    assert daemon.stop() == 0


def test_a_load_that_cannot_fit_is_refused_before_it_starts(
    place: Place, start: Callable[..., Daemon], write_plan: Callable[[str], Path]
) -> None:
    place.make("0::/c1").v2("c1", str(LIMIT_BYTES), str(LIMIT_BYTES - TINY_FLOAT32_BYTES + 1))
    daemon = start(write_plan(LOAD.replace("LOAD", "tiny")), *place.options)
    refused = f"model 'tiny' does not fit into the host's memory: it needs {TINY_FLOAT32_BYTES} bytes"

    def refusal(left: int) -> str | None:
        details = (fault["detail"] for fault in daemon.status()["faults"])
        return next((text for text in details if refused in text and f"and {left} bytes" in text), None)

    wait_for("the refusal", lambda: refusal(TINY_FLOAT32_BYTES - 1))
    assert daemon.total("vramscope_step_runs_total", kind="load", outcome="failed") > 0
    assert daemon.total("vramscope_phase_last_duration_seconds", kind="load", phase="read") is None
    assert daemon.total("vramscope_worker_load_peak_bytes") is None

    place.make("0::/c1").v2("c1", str(LIMIT_BYTES))  # nobody tells what is in use, but the worker alone is larger
    wait_for("the refusal", lambda: refusal(0))
    place.make("0::/c1").v2("c1", str(LIMIT_BYTES), str(LIMIT_BYTES - TINY_FLOAT32_BYTES))
    wait_for("the loaded model", lambda: daemon.total("vramscope_step_running", step="loaded"))
    assert daemon.total("vramscope_worker_load_peak_bytes", model="tiny") > TINY_FLOAT32_BYTES
    assert daemon.stop() == 0


def test_a_load_that_is_forced_is_only_warned_of(
    place: Place, start: Callable[..., Daemon], write_plan: Callable[[str], Path]
) -> None:
    place.make("0::/c1").v2("c1", str(LIMIT_BYTES))
    daemon = start(write_plan(LOAD.replace("LOAD", "{model: tiny, force: true}")), *place.options)
    wait_for("the loaded model", lambda: daemon.total("vramscope_step_running", step="loaded"))
    load = next(step for step in daemon.status()["steps"] if step["kind"] == "load")
    assert load["facts"]["forced"].startswith(f"it needs {TINY_FLOAT32_BYTES} bytes")
    wait_for("the warning", lambda: "forced: model 'tiny' does not fit" in daemon.output)
    assert daemon.stop() == 0

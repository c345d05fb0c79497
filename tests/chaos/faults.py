"""What goes wrong in a fault run. ADD A FAULT: a function that does it, undoes it, and checks what it promises."""

import contextlib
import os
import random
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.daemon import HEARTBEAT_SECONDS
from tests.daemon import Daemon, wait_for
from tests.devices.fake_nvml import DRIVER_NOT_LOADED, GPU_IS_LOST, MISMATCH, UNKNOWN_ERROR, FakeNvml, Gpu

CYCLES = "vramscope_cycles_total"
HALF_OPEN, STORMERS, SCRAPES = 100, 10, 10
PLAN = """
version: 1
name: NAME
models:
  NAME: {source: "synthetic:tiny"}
repeat: REPEAT
steps:
  - load: NAME
  - move: NAME
  - {wait: 50ms, name: settled}
  - move: {model: NAME, to: cpu}
  - unload: NAME
  - release
"""


def plan(name: str, repeat: str = "forever") -> str:
    return PLAN.replace("NAME", name).replace("REPEAT", repeat)


@dataclass
class Stage:
    """The daemon that suffers, the machine that it runs on, and what was seen of it."""

    daemon: Daemon
    plan: Path
    journal: Path
    machine: FakeNvml | None
    chance: random.Random
    name: str = "first"
    torn: int = 0
    workers: set[int] = field(default_factory=set)
    slow: list[tuple[float, str]] = field(default_factory=list)

    def worker(self) -> int:
        """The worker's process id, once there is one that is ready."""

        def ready() -> int | None:
            state = self.daemon.status()["worker"]
            return state["pid"] if state["up"] else None

        pid = wait_for("a worker", ready)
        self.workers.add(pid)
        return pid

    def cycles(self, outcome: str | None = None) -> float:
        labels = {} if outcome is None else {"outcome": outcome}
        return self.daemon.total(CYCLES, **labels) or 0

    def good_cycle(self) -> None:
        """Wait for one that began after now: the first to end may have begun before."""
        before = self.cycles("succeeded")
        wait_for("two good cycles", lambda: self.cycles("succeeded") >= before + 2)

    def post(self, path: str) -> int:
        request = urllib.request.Request(self.daemon.url + path, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status
        except urllib.error.HTTPError as error:
            return error.code

    def scrape(self) -> float:
        """How long the page takes, in seconds; fails where it does not come."""
        began = time.perf_counter()
        assert "vramscope_build_info" in self.daemon.get("/metrics")
        return time.perf_counter() - began


def kill_the_worker(stage: Stage) -> None:
    pid, before = stage.worker(), stage.daemon.total("vramscope_worker_restarts_total", reason="signal") or 0
    os.kill(pid, signal.SIGKILL)
    wait_for(
        "its count", lambda: (stage.daemon.total("vramscope_worker_restarts_total", reason="signal") or 0) > before
    )


def stop_the_worker_for_a_while(stage: Stage) -> None:
    pid = stage.worker()
    os.kill(pid, signal.SIGSTOP)
    time.sleep(HEARTBEAT_SECONDS / 4)
    os.kill(pid, signal.SIGCONT)


def stop_the_worker_for_good(stage: Stage) -> None:
    pid, before = stage.worker(), stage.daemon.total("vramscope_worker_restarts_total", reason="hung") or 0
    os.kill(pid, signal.SIGSTOP)
    wait_for("its count", lambda: (stage.daemon.total("vramscope_worker_restarts_total", reason="hung") or 0) > before)
    wait_for("its end", lambda: not Path(f"/proc/{pid}").exists())


def nvml_up(stage: Stage) -> float | None:
    """Whether NVML tells of its device; None where none is known."""
    series = stage.daemon.samples().get("vramscope_nvml_up", {})
    found = [value for labels, value in series.items() if not dict(labels)["device"].startswith("cuda:")]
    return min(found, default=None)


def nvml_errors(stage: Stage) -> None:
    assert stage.machine is not None
    code = stage.chance.choice([DRIVER_NOT_LOADED, GPU_IS_LOST, MISMATCH, UNKNOWN_ERROR])
    broken = {"init": code} if code in (DRIVER_NOT_LOADED, MISMATCH) else {}
    stage.machine.set(Gpu(code=code), **broken)
    wait_for("its complaint", lambda: nvml_up(stage) == 0)
    stage.machine.set(Gpu())
    wait_for("its answer", lambda: nvml_up(stage) == 1)


def nvml_hangs(stage: Stage) -> None:
    assert stage.machine is not None
    stage.machine.set(Gpu(), sleep=4000)
    wait_for("its silence", lambda: nvml_up(stage) == 0)
    stage.good_cycle()
    stage.machine.set(Gpu())
    wait_for("its answer", lambda: nvml_up(stage) == 1)


def bad_reload(stage: Stage) -> None:
    good = stage.plan.read_text()
    stage.plan.write_text(stage.chance.choice(["version: 1\nsteps:\n  - lod: x\n", "", "a: [", "version: 9\n"]))
    assert stage.post("/-/reload") == 500
    assert stage.daemon.total("vramscope_plan_last_reload_success") == 0
    stage.good_cycle()
    stage.plan.write_text(good)
    wait_for("the good file", lambda: stage.daemon.total("vramscope_plan_last_reload_success") == 1)


def new_plan(stage: Stage) -> None:
    stage.name = "second" if stage.name == "first" else "first"
    new = stage.plan.with_suffix(".new")
    new.write_text(plan(stage.name))
    new.replace(stage.plan)
    wait_for("the new plan", lambda: stage.daemon.status()["plan"]["name"] == stage.name)
    other = "second" if stage.name == "first" else "first"
    assert f'model="{other}"' not in stage.daemon.get("/metrics")


def half_open_connections(stage: Stage) -> None:
    host, _, port = stage.daemon.url.removeprefix("http://").rpartition(":")
    halves = [socket.create_connection((host, int(port)), timeout=30) for _ in range(HALF_OPEN)]
    for half in halves:
        half.sendall(b"GET /metr")
    stage.slow.append((stage.scrape(), "beside half-open connections"))
    for half in halves:
        with contextlib.suppress(ConnectionResetError):
            assert half.recv(1) == b"", "dropped within 30 s"
        half.close()


def scrape_storm(stage: Stage) -> None:
    failures: list[BaseException] = []

    def scrape() -> None:
        try:
            for _ in range(SCRAPES):
                stage.slow.append((stage.scrape(), "in a storm of scrapes"))
        except (AssertionError, OSError) as error:
            failures.append(error)

    threads = [threading.Thread(target=scrape) for _ in range(STORMERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


Fault = Callable[[Stage], None]
FAULTS: tuple[Fault, ...] = (
    kill_the_worker,
    stop_the_worker_for_a_while,
    stop_the_worker_for_good,
    bad_reload,
    new_plan,
    half_open_connections,
    scrape_storm,
)
NVML_FAULTS: tuple[Fault, ...] = (nvml_errors, nvml_hangs)

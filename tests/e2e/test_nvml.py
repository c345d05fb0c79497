"""A daemon without CUDA on machines whose NVML fails as in the field: what a scrape sees, and what it costs."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.daemon import Daemon, wait_for
from tests.devices.fake_nvml import (
    DRIVER_NOT_LOADED,
    GIB,
    GPU_IS_LOST,
    MIB,
    MISMATCH,
    SELF,
    UNKNOWN_ERROR,
    FakeNvml,
    Gpu,
    build,
)

PLAN = "version: 1\nmodels: {}\nrepeat: forever\nsteps: [{wait: 500ms}]\n"
UP, USED, OWN = "vramscope_nvml_up", "vramscope_nvml_used_bytes", "vramscope_nvml_process_used_bytes"
ANSWERED = "vramscope_nvml_last_answer_timestamp_seconds"


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return build(tmp_path_factory.mktemp("libraries"))


@pytest.fixture
def machine(libraries: tuple[Path, Path], tmp_path: Path) -> FakeNvml:
    return FakeNvml(libraries, tmp_path)


@pytest.fixture
def start(cache: Path, write_plan: Callable[[str], Path]) -> Iterator[Callable[[FakeNvml], Daemon]]:
    """Start a daemon on a machine; one that still runs at the end is killed, by its pid."""
    started: list[Daemon] = []

    def begin(machine: FakeNvml) -> Daemon:
        arguments = [str(write_plan(PLAN)), "--device", "simulated"]
        started.append(Daemon(arguments, cache, machine.environment()))
        return started[-1]

    yield begin
    for daemon in started:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()


def cards(daemon: Daemon, name: str) -> dict[str, float]:
    """A metric's values by device, without the simulated ones, in the order of the page."""
    values = {dict(labels)["device"]: value for labels, value in daemon.samples().get(name, {}).items()}
    return {device: value for device, value in values.items() if not device.startswith("cuda:")}


def wait_cards(daemon: Daemon, name: str, expected: dict[str, float]) -> None:
    wait_for(f"{name} being {expected}", lambda: cards(daemon, name) == expected)


def lines(daemon: Daemon, event: str) -> list[str]:
    return [line for line in daemon.lines if event in line]


def test_nvml_comes_breaks_hangs_and_is_mended_without_a_restart(
    machine: FakeNvml, start: Callable[[FakeNvml], Daemon]
) -> None:
    machine.set(init=DRIVER_NOT_LOADED)
    daemon = start(machine)
    wait_cards(daemon, UP, {"all": 0})

    machine.set(Gpu(compute=[(SELF, 300 * MIB)], graphics=[(SELF, 300 * MIB), (77, MIB)]), Gpu(handle=GPU_IS_LOST))
    wait_cards(daemon, UP, {"nvml:0": 1, "nvml:1": 0})
    wait_cards(daemon, USED, {"nvml:0": GIB})
    wait_cards(daemon, OWN, {"nvml:0": 300 * MIB})

    machine.set(Gpu(), Gpu(used=5 * GIB))
    wait_cards(daemon, USED, {"nvml:0": GIB, "nvml:1": 5 * GIB})
    wait_cards(daemon, OWN, {})

    machine.set(Gpu(code=UNKNOWN_ERROR, handle=UNKNOWN_ERROR), Gpu(handle=UNKNOWN_ERROR), init=UNKNOWN_ERROR)
    wait_cards(daemon, UP, {"nvml:0": 0, "nvml:1": 0})
    assert cards(daemon, USED) == {}
    assert list(cards(daemon, ANSWERED)) == ["nvml:0", "nvml:1"]
    wait_for("the hint in the log", lambda: "restart the container" in daemon.output)

    machine.set(Gpu(), Gpu())
    wait_cards(daemon, UP, {"nvml:0": 1, "nvml:1": 1})

    machine.set(Gpu(), Gpu(), sleep=90_000)
    told = len(daemon.lines)
    threads = Path(f"/proc/{daemon.process.pid}/task")
    running = len(list(threads.iterdir()))
    wait_cards(daemon, UP, {"nvml:0": 0, "nvml:1": 0})
    assert cards(daemon, USED) == {}
    seconds = []
    for _ in range(20):
        began = time.monotonic()
        daemon.get("/metrics")
        seconds.append(time.monotonic() - began)
    assert min(seconds) < 1, "most take some milliseconds, on a machine that is not busy"
    assert max(seconds) < 30, "nobody waits for the driver"
    assert len(list(threads.iterdir())) < running + len(seconds), "no thread for each scrape"
    assert daemon.total("vramscope_worker_up") == 1
    assert daemon.total("vramscope_step_runs_total", kind="wait", outcome="failed") in (None, 0)
    assert daemon.stop() == 0
    assert sum("NVML has not answered" in line for line in daemon.lines[told:]) == 1


def test_mismatch_of_driver_and_library_is_named_and_steps_go_on(
    machine: FakeNvml, start: Callable[[FakeNvml], Daemon]
) -> None:
    machine.set(init=MISMATCH)
    daemon = start(machine)
    wait_for("a cycle", lambda: (daemon.total("vramscope_cycles_total", outcome="succeeded") or 0) >= 1)
    wait_cards(daemon, UP, {"all": 0})
    started = machine.inits()
    wait_for("another try", lambda: machine.inits() > started)
    assert daemon.stop() == 0
    [line] = lines(daemon, "nvml_does_not_tell")
    assert "driver/library version mismatch" in line


def test_seventy_two_gpus_stand_in_order_and_one_start_serves_all_scrapes(
    machine: FakeNvml, start: Callable[[FakeNvml], Daemon]
) -> None:
    machine.set(*(Gpu(used=index * MIB) for index in range(72)))
    daemon = start(machine)
    wait_for("all devices", lambda: len(cards(daemon, USED)) == 72)
    ordered = [(f"nvml:{index}", index * MIB) for index in range(72)]
    for _ in range(10):
        wait_for("their order", lambda: list(cards(daemon, USED).items()) == ordered)
    assert machine.inits() == 1
    assert "NaN" not in daemon.get("/metrics")
    json.loads(daemon.get("/status"), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert daemon.stop() == 0

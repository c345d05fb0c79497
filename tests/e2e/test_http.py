"""The HTTP side of a daemon as a user starts it: its addresses, and scrapers in numbers while it works."""

import socket
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.daemon import Daemon, wait_for
from tests.devices.fake_nvml import FakeNvml, Gpu, build

SCRAPERS, SCRAPES = 10, 10
IDLE = "version: 1\nmodels: {}\nrepeat: forever\nsteps: [{wait: 1s}]\n"
BUSY = """
version: 1
models:
  qwen: {source: "synthetic:qwen2.5-0.5b", dtype: float16}
repeat: forever
steps:
  - load: qwen
  - unload: qwen
"""


def page(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        return answer.read().decode()


@pytest.fixture
def _ipv6() -> None:
    """Skips where there is no IPv6 loopback."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        pytest.skip("there is no IPv6 here")


@pytest.mark.usefixtures("_ipv6")
def test_it_listens_on_several_addresses_ipv6_too(
    start: Callable[..., Daemon], write_plan: Callable[[str], Path]
) -> None:
    daemon = start(write_plan(IDLE), "--device", "simulated", "--listen", "[::1]:0", "--listen", ":0")
    told = wait_for("its addresses", lambda: urls if len(urls := [*dict.fromkeys(daemon.urls())]) == 3 else None)
    assert told[0].startswith("http://[::1]:")
    assert told[1].startswith("http://localhost:")
    for url in told:
        assert "vramscope_build_info" in page(url)


@pytest.mark.timeout(300)
def test_ten_scrapers_at_once_are_served_during_a_load_and_beside_a_hung_driver(
    tmp_path: Path, cache: Path, write_plan: Callable[[str], Path]
) -> None:
    (tmp_path / "machine").mkdir()
    (tmp_path / "libraries").mkdir()
    machine = FakeNvml(build(tmp_path / "libraries"), tmp_path / "machine")
    machine.set(Gpu())
    daemon = Daemon([str(write_plan(BUSY)), "--device", "simulated"], cache, machine.environment())
    try:
        wait_for("a cycle", lambda: daemon.total("vramscope_cycles_total", outcome="succeeded"), 180)
        machine.set(Gpu(), sleep=60_000)
        wait_for("a load", lambda: daemon.total("vramscope_step_running", kind="load"))
        took: list[float] = []

        def scrape() -> None:
            for _ in range(SCRAPES):
                began = time.perf_counter()
                assert "vramscope_build_info" in page(daemon.url)
                took.append(time.perf_counter() - began)

        before = machine.inits()
        threads = [threading.Thread(target=scrape) for _ in range(SCRAPERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        assert len(took) == SCRAPERS * SCRAPES, "a scrape failed"
        print(f"the slowest of {len(took)} scrapes took {max(took) * 1000:.0f} ms")
        assert max(took) < 30, "1 s on a machine that is not busy with other tests; the driver takes 60"
        assert machine.inits() == before, "scrapes ask nothing of the driver"
        machine.set(Gpu())
    finally:
        daemon.process.kill()
        daemon.process.wait()
        daemon._reader.join(30)

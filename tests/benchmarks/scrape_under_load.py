"""How long a scrape takes while a model is loaded: `python tests/benchmarks/scrape_under_load.py`.

A full-size model is loaded and unloaded back to back, once by `vramscope run`, where the worker is a process of its
own, and once by a thread in the process that serves (one_process.py); in turn, A B A B. Meanwhile this process scrapes
/metrics 20 times a second, over ten connections that take turns: a stall shows in every scrape that is due during it.
"""

import argparse
import http.client
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from figures import CHECKPOINT, checkpoint_directory, percentile, say, say_table, write_json

INTERVAL_SECONDS = 0.05
SCRAPERS = 10
SCRAPE_TIMEOUT_SECONDS = 5.0
START_SECONDS = 60.0
STOP_SECONDS = 5.0
HERE = Path(__file__).parent
PLAN = f"""
version: 1
name: back-to-back
repeat: forever
models:
  qwen: {{source: "synthetic:{CHECKPOINT}", dtype: float16}}
steps:
  - load: qwen
  - unload: qwen
"""
LOADS = re.compile(rb'^vramscope_step_runs_total\{kind="load",outcome="succeeded"\} ([0-9.e+]+)$', re.MULTILINE)


@dataclass
class Scrapes:
    """What one or more runs of one arrangement showed."""

    seconds: list[float] = field(default_factory=list)
    failures: int = 0
    loads: int = 0

    def add(self, other: "Scrapes") -> None:
        self.seconds += other.seconds
        self.failures += other.failures
        self.loads += other.loads

    def figures(self) -> dict[str, Any]:
        p50, p99, worst = (percentile(self.seconds, percent) for percent in (50, 99, 100))
        return {
            "scrapes": len(self.seconds),
            "failures": self.failures,
            "loads": self.loads,
            "p50_seconds": p50,
            "p99_seconds": p99,
            "max_seconds": worst,
        }


class Target:
    """A daemon's /metrics over one connection that is kept, as Prometheus keeps it."""

    def __init__(self, port: int) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SCRAPE_TIMEOUT_SECONDS)

    def scrape(self) -> bytes | None:
        """The page; None if there was none within the time."""
        try:
            self._connection.request("GET", "/metrics")
            answer = self._connection.getresponse()
            page = answer.read()
        except (OSError, http.client.HTTPException):
            self._connection.close()
            return None
        return page if answer.status == http.client.OK else None

    def close(self) -> None:
        self._connection.close()


def loads_so_far(port: int) -> int:
    """How many loads have succeeded; 0 as long as nobody answers."""
    target = Target(port)
    found = LOADS.search(target.scrape() or b"")
    target.close()
    return int(float(found[1])) if found else 0


def measure(port: int, seconds: float) -> Scrapes:
    """Scrape at a fixed pace for so long. The scrapers take turns, so that one that waits does not hold up the next."""
    found = Scrapes()
    before, began = loads_so_far(port), time.monotonic()
    threads = [
        threading.Thread(target=scrape_in_turn, args=(port, began + turn * INTERVAL_SECONDS, began + seconds, found))
        for turn in range(SCRAPERS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found.loads = loads_so_far(port) - before
    return found


def scrape_in_turn(port: int, due: float, end: float, found: Scrapes) -> None:
    """One scraper's work: every time that its turn comes, until the end."""
    target = Target(port)
    while due < end:
        time.sleep(max(0.0, due - time.monotonic()))
        if target.scrape() is None:
            found.failures += 1
        else:
            found.seconds.append(time.monotonic() - due)
        due += SCRAPERS * INTERVAL_SECONDS
    target.close()


@contextmanager
def running(command: Sequence[str]) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_SECONDS)
        process.kill()
        process.wait()


def measure_one(command: Sequence[str], port: int, seconds: float) -> Scrapes:
    """Start a daemon, wait until it has loaded twice, and measure it."""
    with running(command):
        end = time.monotonic() + START_SECONDS
        while loads_so_far(port) < 2:
            if time.monotonic() > end:
                raise SystemExit(f"no two loads within {START_SECONDS:g} s: {' '.join(command)}")
            time.sleep(0.2)
        return measure(port, seconds)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def commands(plan: Path, port: int) -> dict[str, list[str]]:
    """How each arrangement is started. Copies to the simulated device take no time of their own."""
    address = f"127.0.0.1:{port}"
    shipped = ["run", str(plan), "--device", "simulated", "--bandwidth", "0", "--listen", address, "--quiet"]
    return {
        "two processes": [sys.executable, "-m", "vramscope", *shipped],
        "one process": [sys.executable, str(HERE / "one_process.py"), str(plan), address],
    }


def report(found: dict[str, Scrapes]) -> dict[str, Any]:
    """Print the table and the ratio; return them as values."""
    figures = {name: scrapes.figures() for name, scrapes in found.items()}
    say_table(
        ("arrangement", "scrapes", "failures", "loads", "p50 ms", "p99 ms", "max ms"),
        (
            (
                name,
                *(str(each[count]) for count in ("scrapes", "failures", "loads")),
                *(f"{1000 * each[time]:.1f}" for time in ("p50_seconds", "p99_seconds", "max_seconds")),
            )
            for name, each in figures.items()
        ),
    )
    two, one = figures["two processes"], figures["one process"]
    ratios = {name: one[name] / two[name] for name in ("p50_seconds", "p99_seconds", "max_seconds")}
    texts = (f"{name.removesuffix('_seconds')} {ratio:.1f}" for name, ratio in ratios.items())
    say(f"one process / two processes: {', '.join(texts)}")
    return {"arrangements": figures, "one_to_two": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10, help="how long each turn is measured (default: 10)")
    parser.add_argument("--turns", type=int, default=2, help="turns of each arrangement (default: 2)")
    parser.add_argument("--json", type=Path, default=Path("scrape_under_load.json"), help="where the figures go")
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    checkpoint_directory()
    found: dict[str, Scrapes] = {}
    with tempfile.TemporaryDirectory() as directory:
        plan = Path(directory) / "plan.yaml"
        plan.write_text(PLAN)
        for _ in range(arguments.turns):
            port = free_port()
            for name, command in commands(plan, port).items():
                found.setdefault(name, Scrapes()).add(measure_one(command, port, arguments.seconds))
    write_json(arguments.json, report(found))


if __name__ == "__main__":
    main()

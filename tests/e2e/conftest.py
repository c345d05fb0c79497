"""A daemon as a user starts it, and a real Prometheus beside it. Both are ended by the process that started them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

DEADLINE_SECONDS = 60.0


def wait_for(what: str, condition: Callable[[], Any], seconds: float = DEADLINE_SECONDS) -> Any:
    """The first true answer of `condition`; fails with the last answer when the time is up."""
    end = time.monotonic() + seconds
    answer = condition()
    while not answer:
        assert time.monotonic() < end, f"{what} did not happen within {seconds} s; last answer: {answer!r}"
        time.sleep(0.05)
        answer = condition()
    return answer


class Daemon:
    """`vramscope run` in a process of its own."""

    def __init__(self, arguments: list[str], cache: Path) -> None:
        environment = {**os.environ, "VRAMSCOPE_CACHE": str(cache)}
        command = [sys.executable, "-m", "vramscope", "run", *arguments, "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = wait_for("the daemon's address", self._find_url, 20).rstrip("/")

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def get(self, path: str, timeout: float = 5.0) -> str:
        with urllib.request.urlopen(self.url + path, timeout=timeout) as answer:
            return answer.read().decode()

    def status(self) -> dict[str, Any]:
        return json.loads(self.get("/status"))

    def samples(self) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
        """Metric name to {sorted labels: value}, as a scrape sees it now."""
        found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
        for family in text_string_to_metric_families(self.get("/metrics")):
            for sample in family.samples:
                found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
        return found

    def total(self, name: str, **labels: str) -> float | None:
        """The sum of a metric's series that have these labels; None if there is none."""
        series = self.samples().get(name, {})
        values = [value for key, value in series.items() if labels.items() <= dict(key).items()]
        return sum(values) if values else None

    def worker_pid(self) -> int | None:
        return self.status()["worker"]["pid"]

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 10.0) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        self._reader.join(5)
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for line in stream:
                self.lines.append(line)

    def _find_url(self) -> str | None:
        assert self.process.poll() is None, f"the daemon ended at once: {self.output}"
        found = re.search(r"http://[\w.:\[\]]+/", self.output)
        return found[0] if found else None


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Synthetic checkpoints for the whole session; a full-size one takes 1 GB, so none is left behind."""
    directory = tmp_path_factory.mktemp("checkpoints")
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def start(cache: Path) -> Iterator[Callable[..., Daemon]]:
    """Start daemons; whatever still runs at the end of the test is killed, by its pid."""
    started: list[Daemon] = []

    def begin(*arguments: object) -> Daemon:
        started.append(Daemon([str(argument) for argument in arguments], cache))
        return started[-1]

    yield begin
    for daemon in started:
        if daemon.process.poll() is None:
            daemon.process.kill()
            daemon.process.wait()
        daemon._reader.join(5)


@pytest.fixture
def write_plan(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        path = tmp_path / "plan.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


class Prometheus:
    """A real Prometheus that scrapes one daemon every second."""

    def __init__(self, directory: Path, target: str, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}"
        configuration = directory / "prometheus.yml"
        configuration.write_text(
            "global: {scrape_interval: 1s}\n"
            "scrape_configs:\n"
            "  - job_name: vramscope\n"
            f"    static_configs: [{{targets: ['{target}']}}]\n"
        )
        self.process = subprocess.Popen(
            [
                "prometheus",
                f"--config.file={configuration}",
                f"--storage.tsdb.path={directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{port}",
                "--log.level=error",
            ]
        )
        wait_for("Prometheus being ready", self._ready, 30)

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The instant vector that an expression gives: labels and value of each series."""
        quoted = urllib.parse.quote(expression)
        with urllib.request.urlopen(f"{self._url}/api/v1/query?query={quoted}", timeout=10) as answer:
            data = json.loads(answer.read())
        assert data["status"] == "success", data
        return [(entry["metric"], float(entry["value"][1])) for entry in data["data"]["result"]]

    def value(self, expression: str) -> float | None:
        found = self.query(expression)
        assert len(found) <= 1, found
        return found[0][1] if found else None

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)

    def _ready(self) -> bool:
        assert self.process.poll() is None, "Prometheus ended at once"
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False

"""A daemon as a user starts it, seen from outside."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

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


def children_of(pid: int) -> list[int]:
    """The processes that have this parent now."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        if int(text.rpartition(")")[2].split()[1]) == pid:
            found.append(int(stat.parent.name))
    return found


class Daemon:
    """`vramscope run` in a process of its own, in this environment (None: ours)."""

    program: tuple[str, ...] = ("-m", "vramscope", "run")

    def __init__(self, arguments: list[str], cache: Path, environment: Mapping[str, str] | None = None) -> None:
        environment = {**(os.environ if environment is None else environment), "VRAMSCOPE_CACHE": str(cache)}
        command = [sys.executable, *self.program, *arguments, "--listen", "127.0.0.1:0"]
        self.process = subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.url = wait_for("the daemon's address", self._find_url).rstrip("/")  # told once the worker is ready

    @property
    def output(self) -> str:
        return "".join(self.lines)

    def get(self, path: str, timeout: float = 30.0) -> str:
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

    def total(self, name: str, /, **labels: str) -> float | None:
        """The sum of a metric's series that have these labels; None if there is none."""
        series = self.samples().get(name, {})
        values = [value for key, value in series.items() if labels.items() <= dict(key).items()]
        return sum(values) if values else None

    def worker_pid(self) -> int | None:
        return self.status()["worker"]["pid"]

    def stop(self, number: signal.Signals = signal.SIGTERM, seconds: float = 30.0) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        self._reader.join(30)
        return code

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as stream:
            for line in stream:
                self.lines.append(line)

    def _find_url(self) -> str | None:
        assert self.process.poll() is None, f"the daemon ended at once: {self.output}"
        return next(iter(self.urls()), None)

    def urls(self) -> list[str]:
        """Every address that it has told so far, in that order, without the last slash."""
        return [found.rstrip("/") for found in re.findall(r"https?://[\w.:\[\]]+/", self.output)]

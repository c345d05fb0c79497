"""A daemon as a user starts it, and a real Prometheus beside it. Both are ended by the process that started them."""

import json
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.daemon import Daemon, wait_for


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

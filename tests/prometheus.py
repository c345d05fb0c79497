"""A real Prometheus that scrapes daemons. It is ended by the process that started it."""

import contextlib
import json
import random
import socket
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.daemon import wait_for


def free_port() -> int:
    """A port of the loopback that nobody listens on now; kernels give none of these to those who ask for any."""
    for port in random.sample(range(10_100, 15_000), 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("a hundred ports are in use")


class Prometheus:
    """Scrapes the daemons at `targets` and evaluates `rules`, each once an `interval`.

    A target is a host:port or an entry of static_configs. `access` is what a scrape needs beside that, in the words of
    Prometheus: scheme, tls_config, basic_auth; `more` are further sections of the configuration.
    """

    def __init__(  # noqa: PLR0913 - a configuration has these parts
        self,
        directory: Path,
        targets: str | Sequence[str | Mapping[str, Any]],
        port: int,
        *,
        interval: str = "1s",
        rules: Sequence[Path] = (),
        access: Mapping[str, Any] | None = None,
        more: Mapping[str, Any] | None = None,
    ) -> None:
        self.url = f"http://127.0.0.1:{port}"
        each_target = [targets] if isinstance(targets, str) else targets
        groups = [{"targets": [each]} if isinstance(each, str) else each for each in each_target]
        configuration = directory / "prometheus.json"  # JSON is YAML
        configuration.write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": interval, "evaluation_interval": interval},
                    "rule_files": [str(path) for path in rules],
                    "scrape_configs": [{"job_name": "vramscope", **(access or {}), "static_configs": groups}],
                    **(more or {}),
                }
            )
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
        wait_for("Prometheus being ready", self._ready)

    def ask(self, path: str, **parameters: object) -> Any:
        """The data that an address of the HTTP API answers with; fails with Prometheus' own words for a bad query."""
        body = urllib.parse.urlencode(parameters, doseq=True).encode() or None  # some addresses take GET only
        question = urllib.request.Request(f"{self.url}{path}", body)
        try:
            with urllib.request.urlopen(question, timeout=60) as answer:
                return json.loads(answer.read())["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from error

    def query(self, expression: str, at: float | None = None) -> list[tuple[dict[str, str], float]]:
        """The instant vector that an expression gives, now or `at` that time: labels and value of each series."""
        data = self.ask("/api/v1/query", query=expression, **({} if at is None else {"time": at}))
        return [(entry["metric"], float(entry["value"][1])) for entry in data["result"]]

    def moment(self, expression: str) -> float | None:
        """Now, in seconds of the epoch, if the expression gives something; to ask for more of the same time."""
        found = self.ask("/api/v1/query", query=expression)["result"]
        return found[0]["value"][0] if found else None

    def value(self, expression: str, at: float | None = None) -> float | None:
        found = self.query(expression, at)
        assert len(found) <= 1, found
        return found[0][1] if found else None

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)

    def _ready(self) -> bool:
        assert self.process.poll() is None, "Prometheus ended at once"
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
                return answer.status == 200
        except OSError:
            return False

"""The shipped compose file with the simulated override, under a project name of its own, seen from outside."""

import json
import os
import re
import shutil
import subprocess
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parent
REPOSITORY = FOLDER.parents[1]
FILES = (
    "docker-compose.yml",
    "deploy/compose.simulated.yml",
    "deploy/compose.webhook.yml",
    "tests/compose/compose.test.yml",
)
WEBHOOK = "http://webhook:8080/"
PROJECT = "vramscope-test"


def quick_configuration(to: Path) -> None:
    """Copy the shipped configurations with every waiting time cut; what they say else stays as it is."""
    shutil.copytree(REPOSITORY / "deploy/prometheus", to / "prometheus")
    shutil.copytree(REPOSITORY / "deploy/alertmanager", to / "alertmanager")
    _edit(to / "prometheus/prometheus.yml", r"(scrape|evaluation)_interval: \w+", r"\1_interval: 2s")
    _edit(to / "prometheus/prometheus.yml", r"scrape_timeout: \w+", "scrape_timeout: 2s")
    for rules in (to / "prometheus/rules").glob("*.yml"):
        _edit(rules, r"\b(for|keep_firing_for|interval): *\w+", r"\1: 4s")
    _edit(to / "alertmanager/webhook.yml", r"group_(wait|interval): \w+", r"group_\1: 1s")


def address_in_the_file(configuration: Path) -> None:
    """Write the webhook's address into the file itself: Alertmanager before 0.26 reads no `url_file`."""
    _edit(configuration, r"url_file: [\w/]+", f"url: {WEBHOOK}")


def _edit(path: Path, pattern: str, replacement: str) -> None:
    path.write_text(re.sub(pattern, replacement, path.read_text()))


def docker(*arguments: str) -> str:
    """Run docker; returns its standard output."""
    done = subprocess.run(["docker", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"docker {' '.join(arguments)}: {done.stderr}"
    return done.stdout


def succeeds(*arguments: str) -> bool:
    return not subprocess.run(["docker", *arguments], capture_output=True, timeout=600, check=False).returncode


def can_have(image: str) -> bool:
    return succeeds("image", "inspect", image) or succeeds("pull", "--quiet", image)


class Stack:
    """The services that are started, and what they answer on the ports that they were given."""

    def __init__(self, directory: Path) -> None:
        (directory / "webhook_url").write_text(WEBHOOK)
        quick_configuration(directory)
        self._environment = {
            **os.environ,
            "GRAFANA_ADMIN_PASSWORD": "only-for-this-test",
            "ALERT_WEBHOOK_URL_FILE": str(directory / "webhook_url"),
            "TEST_CONFIGURATION": str(directory),
            "TEST_FOLDER": str(FOLDER),
            "VRAMSCOPE_PLANS": str(FOLDER / "plans"),
            "VRAMSCOPE_PLAN": "alert.yaml",
            "VRAMSCOPE_CAPACITY": "1200MiB",
            **dict.fromkeys(("VRAMSCOPE_PORT", "PROMETHEUS_PORT", "ALERTMANAGER_PORT", "GRAFANA_PORT"), "0"),
        }
        images = {name: service["image"] for name, service in self.configuration()["services"].items()}
        self.services = [name for name, image in images.items() if can_have(image)]
        self.left_out = sorted(images.keys() - set(self.services))
        if not self._reads_url_file(directory / "alertmanager", images["alertmanager"]):
            address_in_the_file(directory / "alertmanager/webhook.yml")

    def configuration(self) -> dict[str, Any]:
        """What compose makes of all the files together."""
        return yaml.safe_load(self.compose("config"))

    def compose(self, *arguments: str, seconds: float = 300) -> str:
        """Run docker-compose; returns its standard output."""
        files = [word for name in FILES for word in ("--file", str(REPOSITORY / name))]
        command = ["docker-compose", "--project-name", PROJECT, "--project-directory", str(REPOSITORY), *files]
        done = subprocess.run(
            [*command, *arguments],
            env=self._environment,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
        assert done.returncode == 0, f"docker-compose {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def up(self) -> None:
        """Start what can be had, and wait until all of it is healthy."""
        self.compose("up", "--detach", "--no-build", "--wait", "--wait-timeout", "240", *self.services)

    def down(self) -> None:
        """Remove containers, volumes and networks, whatever state they are in."""
        self.compose("down", "--volumes", "--timeout", "20")

    def inspect(self, service: str) -> dict[str, Any]:
        identity = self.compose("ps", "--all", "--quiet", service).strip()
        return json.loads(docker("inspect", identity))[0]

    def get(self, service: str, port: int, path: str) -> Any:
        """The JSON that a service answers on the loopback of this machine."""
        address = self.compose("port", service, str(port)).strip()
        with urllib.request.urlopen(f"http://{address}{path}", timeout=10) as answer:
            return json.loads(answer.read())

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series that Prometheus answers with."""
        answer = self.get("prometheus", 9090, f"/api/v1/query?query={urllib.parse.quote(expression)}")
        return [(entry["metric"], float(entry["value"][1])) for entry in answer["data"]["result"]]

    def notified(self) -> list[dict[str, Any]]:
        """The alerts that reached the webhook, in order, once each time."""
        return [alert for notification in self.get("webhook", 8080, "/") for alert in notification["alerts"]]

    @staticmethod
    def _reads_url_file(configuration: Path, image: str) -> bool:
        check = [
            "--entrypoint",
            "amtool",
            "--volume",
            f"{configuration}:/c:ro",
            image,
            "check-config",
            "/c/webhook.yml",
        ]
        return succeeds("run", "--rm", *check)

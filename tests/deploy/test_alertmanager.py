"""Where alerts go, and which of them keep quiet: asked of amtool, and of a real Alertmanager."""

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.daemon import wait_for
from tests.prometheus import free_port

from .conftest import REPOSITORY

PLAIN = REPOSITORY / "deploy/alertmanager/alertmanager.yml"
WEBHOOK = REPOSITORY / "deploy/alertmanager/webhook.yml"

HERE = {"job": "vramscope", "instance": "gpu-1:10089"}
VRAM = {**HERE, "device": "cuda:0", "resource": "vram"}


def test_both_configurations_differ_only_in_where_alerts_are_sent() -> None:
    plain, webhook = (yaml.safe_load(path.read_text()) for path in (PLAIN, WEBHOOK))
    sent = {receiver["name"]: receiver.pop("webhook_configs", None) for receiver in webhook["receivers"]}
    assert webhook == plain
    hook = [{"url_file": "/run/secrets/alert_webhook_url", "send_resolved": True}]
    assert sent == {"page": hook, "ticket": hook, "silent": None}


def test_amtool_finds_no_fault(clean: Callable[..., str]) -> None:
    assert "SUCCESS" in clean("amtool", "check-config", PLAIN)


@pytest.mark.parametrize(
    ("labels", "receiver"),
    [
        ({"alertname": "VramscopeVramCritical", "severity": "critical"}, "page"),
        ({"alertname": "VramscopeVramWarning", "severity": "warning"}, "ticket"),
        ({"alertname": "VramscopeDown", "severity": "critical", "device": "cuda:0"}, "page"),
        ({"alertname": "VramscopeSomething", "severity": "info"}, "silent"),
        ({"alertname": "NotOfVramscope"}, "ticket"),
    ],
)
def test_severity_decides_who_gets_an_alert(
    labels: Mapping[str, str], receiver: str, clean: Callable[..., str]
) -> None:
    words = [f"{name}={value}" for name, value in labels.items()]
    assert clean("amtool", "config", "routes", "test", f"--config.file={PLAIN}", *words).strip() == receiver


class Alertmanager:
    """A real Alertmanager with the shipped configuration, for alerts that a test makes."""

    def __init__(self, program: str, directory: Path) -> None:
        self._url = f"http://127.0.0.1:{free_port()}"
        self.process = subprocess.Popen(
            [
                program,
                f"--config.file={PLAIN}",
                f"--storage.path={directory}",
                f"--web.listen-address={self._url.removeprefix('http://')}",
                "--cluster.listen-address=",
                "--log.level=error",
            ]
        )

    def is_ready(self) -> bool:
        assert self.process.poll() is None, "Alertmanager ended at once"
        try:
            with urllib.request.urlopen(f"{self._url}/-/ready", timeout=2) as answer:
                return answer.status == 200
        except OSError:
            return False

    def send(self, alerts: Sequence[Mapping[str, str]]) -> None:
        body = json.dumps([{"labels": labels} for labels in alerts]).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"{self._url}/api/v2/alerts", data=body, headers=headers)
        with urllib.request.urlopen(request, timeout=60):
            pass

    def inhibited(self, test: str) -> set[str]:
        """The ids of the alerts of a test that keep quiet."""
        with urllib.request.urlopen(f"{self._url}/api/v2/alerts?filter=test%3D%22{test}%22", timeout=60) as answer:
            alerts: list[dict[str, Any]] = json.loads(answer.read())
        return {alert["labels"]["id"] for alert in alerts if alert["status"]["inhibitedBy"]}


@pytest.fixture(scope="module")
def alertmanager(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    program = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager")
    if program is None:
        pytest.skip("Alertmanager is not installed")
    running = Alertmanager(program, tmp_path_factory.mktemp("alertmanager"))
    try:
        wait_for("Alertmanager being ready", running.is_ready)
        yield running
    finally:
        running.process.terminate()
        running.process.wait(60)


VRAM_CRITICAL = {"alertname": "VramscopeVramCritical", "severity": "critical", **VRAM}
VRAM_WARNING = {"alertname": "VramscopeVramWarning", "severity": "warning", **VRAM}
RESIDUE = {"alertname": "VramscopeResidueGrowing", "severity": "warning", **HERE, "resource": "residue_growth"}
DOWN = {"alertname": "VramscopeDown", "severity": "critical", **HERE, "resource": "daemon"}


@pytest.mark.parametrize(
    ("test", "alerts", "quiet"),
    [
        ("critical over warning", [VRAM_CRITICAL, VRAM_WARNING], {1}),
        ("a warning alone", [VRAM_WARNING], set()),
        ("another device", [VRAM_CRITICAL, {**VRAM_WARNING, "device": "cuda:1"}], set()),
        ("another machine", [VRAM_CRITICAL, {**VRAM_WARNING, "instance": "gpu-2:10089"}], set()),
        ("another resource", [VRAM_CRITICAL, RESIDUE], set()),
        ("down over the rest", [DOWN, VRAM_CRITICAL, VRAM_WARNING, RESIDUE], {1, 2, 3}),
        ("down elsewhere", [DOWN, {**VRAM_CRITICAL, "instance": "gpu-2:10089"}], set()),
        ("not of vramscope", [DOWN, {**VRAM_WARNING, "alertname": "NodeDiskFull"}], set()),
    ],
)
def test_what_says_nothing_new_keeps_quiet(
    test: str, alerts: list[dict[str, str]], quiet: set[int], alertmanager: Alertmanager
) -> None:
    """Each case has machines of its own. The pair that comes last is known to work: once it does, all are judged."""
    name = test.replace(" ", "-")
    last = [{**alert, "device": "last"} for alert in (VRAM_CRITICAL, VRAM_WARNING)]
    if DOWN in alerts:
        last = [{**alert, "instance": "last"} for alert in last]
    for number, alert in enumerate([*alerts, *last]):
        alertmanager.send([{**alert, "instance": f"{name}-{alert['instance']}", "test": name, "id": str(number)}])
    known = str(len(alerts) + 1)
    wait_for("the last pair judged", lambda: known in alertmanager.inhibited(name))
    assert alertmanager.inhibited(name) == {known, *map(str, quiet)}

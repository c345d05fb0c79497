"""What `docker compose up` gives: healthy services, cycles that run, alerts that arrive, an end that leaves nothing."""

from typing import Any

import pytest
from tests.daemon import wait_for

from .stack import PROJECT, Stack, docker

pytestmark = [pytest.mark.compose, pytest.mark.timeout(900)]

ALERT_SECONDS = 400.0


def vram_alerts(stack: Stack, status: str) -> list[dict[str, Any]]:
    """The notifications that the card fills up, firing or resolved."""
    return [
        alert
        for alert in stack.notified()
        if alert["status"] == status and alert["labels"]["alertname"] == "VramscopeVramWarning"
    ]


def test_every_service_that_can_be_had_is_healthy(stack: Stack) -> None:
    """`up --wait` has returned, so all are healthy; only Grafana may be left out, and only for want of its image."""
    assert stack.left_out in ([], ["grafana"])
    print(f"left out: {stack.left_out or 'nothing'}")
    states = {service: stack.inspect(service)["State"] for service in stack.services}
    assert {state["Health"]["Status"] for state in states.values()} == {"healthy"}


@pytest.mark.parametrize("service", ["vramscope", "prometheus", "alertmanager"])
def test_a_container_can_do_no_more_than_it_must(stack: Stack, service: str) -> None:
    container = stack.inspect(service)
    host = container["HostConfig"]
    assert host["ReadonlyRootfs"]
    assert host["CapDrop"] == ["ALL"]
    assert host["SecurityOpt"] == ["no-new-privileges:true"]
    assert host["LogConfig"]["Config"] == {"max-file": "3", "max-size": "10m"}
    assert not host["Privileged"]
    assert container["Config"]["User"] not in ("", "root", "0")
    published = [binding for bindings in host["PortBindings"].values() for binding in bindings]
    assert {binding["HostIp"] for binding in published} == {"127.0.0.1"}


def test_the_image_has_the_compiled_code(stack: Stack) -> None:
    """Only that it was built and is found: whether it can be used, the processor decides."""
    code = "from importlib.util import find_spec; print(find_spec('vramscope.loading._halves'))"
    assert "_halves." in stack.compose("exec", "-T", "vramscope", "python", "-c", code)


def test_models_and_plans_cannot_be_written_to(stack: Stack) -> None:
    mounts = {mount["Destination"]: mount["RW"] for mount in stack.inspect("vramscope")["Mounts"]}
    assert mounts == {"/etc/vramscope/plans": False, "/models": False, "/var/cache/vramscope": True}


def test_prometheus_reaches_every_target_and_loads_every_rule(stack: Stack) -> None:
    def up() -> set[str]:
        return {labels["job"] for labels, value in stack.query("up") if value == 1}

    def health() -> set[str]:
        groups = stack.get("prometheus", 9090, "/api/v1/rules")["data"]["groups"]
        return {rule["health"] for group in groups for rule in group["rules"]}

    wait_for("every target up", lambda: up() == {"vramscope", "prometheus", "alertmanager"})
    wait_for("every rule evaluated", lambda: health() == {"ok"})


def test_a_vram_alert_reaches_the_webhook_and_resolves_after_the_unload(stack: Stack) -> None:
    fired = wait_for("a VRAM alert at the webhook", lambda: vram_alerts(stack, "firing"), ALERT_SECONDS)
    assert fired[0]["labels"].items() >= {"job": "vramscope", "device": "cuda:0", "severity": "warning"}.items()
    assert {"summary", "description", "runbook"} <= fired[0]["annotations"].keys()
    resolved = wait_for("its resolution at the webhook", lambda: vram_alerts(stack, "resolved"), ALERT_SECONDS)
    assert resolved[0]["labels"] == fired[0]["labels"]


def test_cycles_run_on_the_simulated_device(stack: Stack) -> None:
    def cycles() -> bool:
        found = stack.query('vramscope_cycles_total{outcome="succeeded"}')
        return bool(found) and found[0][1] >= 1

    wait_for("a cycle that succeeded", cycles, ALERT_SECONDS)
    assert [labels["backend"] for labels, _ in stack.query("vramscope_device_info")] == ["simulated"]
    assert stack.query('vramscope_cycles_total{outcome="failed"} > 0') == []


def test_it_stops_cleanly_and_leaves_nothing(stack: Stack) -> None:
    """The last test: a stop is answered by the processes themselves, not by a kill, and `down -v` takes all of it."""
    stack.compose("stop")
    stopped = ("vramscope", "prometheus", "alertmanager")
    assert [stack.inspect(service)["State"]["ExitCode"] for service in stopped] == [0, 0, 0]
    stack.down()
    ours = ["--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}"]
    assert docker("container", "ls", "--all", *ours) == ""
    assert docker("volume", "ls", *ours) == ""
    assert docker("network", "ls", *ours) == ""

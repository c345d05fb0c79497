"""The manifests, as kubectl builds them, against the schemas of Kubernetes and of the Prometheus Operator."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from vramscope.plan.parse import load_plan
from vramscope.steps._catalog import step_kinds

from .conftest import REPOSITORY

KUBERNETES = REPOSITORY / "deploy/kubernetes"
OVERLAYS = ("gpu", "simulated")
COMPONENTS = sorted(path.name for path in (KUBERNETES / "components").iterdir())
OPERATORS = ("PodMonitor", "PrometheusRule")

Build = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def build(clean: Callable[..., str], tmp_path: Path) -> Build:
    """The objects of an overlay, with components as a user would add them."""

    def run(overlay: str, *components: str) -> list[dict[str, Any]]:
        folder = tmp_path / "-".join((overlay, *components))
        folder.mkdir()
        up = "/".join([".."] * len(folder.relative_to("/").parts))  # kustomize takes no absolute paths
        kustomization = {
            "resources": [f"{up}{KUBERNETES}/overlays/{overlay}"],
            "components": [f"{up}{KUBERNETES}/components/{component}" for component in components],
        }
        (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return list(yaml.safe_load_all(clean("kubectl", "kustomize", folder)))

    return run


def only(objects: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


def pod(objects: list[dict[str, Any]]) -> dict[str, Any]:
    return only(objects, "DaemonSet")["spec"]["template"]["spec"]


@pytest.mark.parametrize(
    ("overlay", "components"),
    [*((overlay, ()) for overlay in OVERLAYS), ("gpu", COMPONENTS), ("simulated", ("host-pid", "host-models"))],
)
def test_every_object_follows_its_schema(
    overlay: str, components: tuple[str, ...], build: Build, clean: Callable[..., str], tmp_path: Path
) -> None:
    objects = [each for each in build(overlay, *components) if each["kind"] not in OPERATORS]
    assert len(objects) == 6
    (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(objects))
    clean("kubernetes-validate", "--strict", tmp_path / "objects.yaml")


@pytest.mark.parametrize("kind", OPERATORS)
def test_the_operators_objects_follow_its_schema(kind: str, build: Build) -> None:
    """The models drop what they do not know: what comes back must be what went in."""
    models = pytest.importorskip("cloudcoil.models.prometheus_operator.v1")
    found = only(build("gpu"), kind)
    read = getattr(models, kind).model_validate(found)
    assert read.model_dump(by_alias=True, exclude_unset=True, mode="json") == found


def test_the_rules_are_those_of_prometheus() -> None:
    """If this fails: python deploy/kubernetes/prometheus_rule.py"""
    path = KUBERNETES / "prometheus_rule.py"
    specification = importlib.util.spec_from_file_location("prometheus_rule", path)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    assert module.TARGET.read_text(encoding="utf-8") == module.prometheus_rule(module.RULES)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_a_pod_can_do_no_more_than_it_must(overlay: str, build: Build) -> None:
    objects = build(overlay)
    spec = pod(objects)
    assert spec["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not spec["automountServiceAccountToken"]
    assert only(objects, "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_user_and_the_paths_are_those_of_the_image(build: Build) -> None:
    dockerfile = (REPOSITORY / "deploy/Dockerfile").read_text()
    spec = pod(build("gpu", "host-models"))
    assert f"USER {spec['securityContext']['runAsUser']}:{spec['securityContext']['runAsGroup']}" in dockerfile
    paths = {mount["mountPath"] for mount in spec["containers"][0]["volumeMounts"]}
    assert paths == {"/etc/vramscope/plans", "/var/cache/vramscope", "/tmp", "/models"}  # noqa: S108 (in the pod)
    for setting in ("VRAMSCOPE_CACHE=/var/cache/vramscope", "HF_HUB_CACHE=/models/hub"):
        assert setting in dockerfile


def test_gpu_claims_a_card_where_there_is_one_and_simulated_never(build: Build) -> None:
    gpu, simulated, unclaimed = pod(build("gpu")), pod(build("simulated")), pod(build("gpu", "unclaimed-gpu"))

    def limits(spec: dict[str, Any]) -> set[str]:
        return set(spec["containers"][0]["resources"]["limits"])

    def device(spec: dict[str, Any]) -> str:
        return spec["containers"][0]["env"][0]["value"]

    assert limits(gpu) - limits(simulated) == {"nvidia.com/gpu"}
    assert limits(unclaimed) == limits(simulated)
    assert (device(gpu), device(simulated), device(unclaimed)) == ("cuda", "simulated", "cuda")
    assert "nodeSelector" not in simulated


def test_what_restricted_forbids_also_lifts_it(build: Build) -> None:
    for component in ("host-pid", "host-models"):
        labels = only(build("gpu", component), "Namespace")["metadata"]["labels"]
        assert labels["pod-security.kubernetes.io/enforce"] == "privileged", component


def test_nothing_is_downloaded_unless_a_component_allows_it(build: Build) -> None:
    base, hub = build("simulated"), build("simulated", "hub")

    def environment(objects: list[dict[str, Any]]) -> dict[str, str]:
        return {each["name"]: each["value"] for each in pod(objects)["containers"][0]["env"]}

    assert environment(base) == {"DEVICE": "simulated", "HF_HUB_OFFLINE": "1"}
    assert "egress" not in only(base, "NetworkPolicy")["spec"]
    assert environment(hub) == {
        "DEVICE": "simulated",
        "HF_HUB_OFFLINE": "0",
        "HF_ENDPOINT": "https://huggingface.co",
        "HF_HUB_CACHE": "/var/cache/vramscope/huggingface/hub",
        "HF_TOKEN_PATH": "/run/secrets/huggingface/token",
    }
    assert {port["port"] for rule in only(hub, "NetworkPolicy")["spec"]["egress"] for port in rule["ports"]} == {
        53,
        443,
    }
    assert only(hub, "Namespace")["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    (token,) = (each["secret"] for each in pod(hub)["volumes"] if "secret" in each)
    assert token == {"secretName": "huggingface", "optional": True, "defaultMode": 0o440}


def test_selectors_find_the_pods(build: Build) -> None:
    objects = build("gpu")
    labels = only(objects, "DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert only(objects, "Service")["spec"]["selector"] == labels
    assert only(objects, "NetworkPolicy")["spec"]["podSelector"].get("matchLabels", {}).items() <= labels.items()
    assert only(objects, "PodMonitor")["spec"]["selector"].get("matchLabels", {}).items() <= labels.items()
    ports = {port["name"]: port["containerPort"] for port in pod(objects)["containers"][0]["ports"]}
    assert ports == {"http": 10089}


def test_the_plan_of_the_config_map_is_sound(build: Build, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(only(build("gpu"), "ConfigMap")["data"]["plan.yaml"])
    assert load_plan(plan, step_kinds()).name == "watch"


def test_scraped_as_in_docker_compose(build: Build) -> None:
    (endpoint,) = only(build("gpu"), "PodMonitor")["spec"]["podMetricsEndpoints"]
    prometheus = yaml.safe_load((REPOSITORY / "deploy/prometheus/prometheus.yml").read_text())
    (job,) = (job for job in prometheus["scrape_configs"] if job["job_name"] == "vramscope")
    assert endpoint["interval"] == prometheus["global"]["scrape_interval"]
    assert endpoint["scrapeTimeout"] == job["scrape_timeout"]
    assert only(build("simulated"), "PodMonitor")["spec"]["sampleLimit"] == job["sample_limit"]
    assert {"targetLabel": "job", "replacement": "vramscope"} in endpoint["relabelings"]

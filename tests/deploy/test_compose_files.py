"""What docker-compose.yml and its overrides say; tests/compose starts them."""

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from .conftest import REPOSITORY, Program

BASE = "docker-compose.yml"
GPU = "docker-compose.override.yml"  # which compose adds by itself where no file is named
PASSWORD = {"GRAFANA_ADMIN_PASSWORD": "only-for-this-test"}

Configure = Callable[..., dict[str, Any]]


@pytest.fixture
def configure(program: Program, tmp_path: Path) -> Configure:
    """What compose makes of some files, in an empty environment but for the variables that are given."""

    def run(*files: str, **variables: str) -> dict[str, Any]:
        done = _compose(program, files, {**PASSWORD, **variables}, tmp_path)
        assert done.returncode == 0, done.stderr
        return yaml.safe_load(done.stdout)

    return run


def _compose(program: Program, files: tuple[str, ...], variables: Mapping[str, str], home: Path) -> Any:
    words = [word for name in files for word in ("--file", name)]
    nothing = ("--env-file", "/dev/null")  # a developer's own .env says nothing here
    return program("docker-compose", *nothing, *words, "config", env={"HOME": str(home), **variables})


def published(configuration: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [port for service in configuration["services"].values() for port in service["ports"]]


@pytest.mark.parametrize("variables", [{}, {"GRAFANA_ADMIN_PASSWORD": ""}])
def test_without_a_password_nothing_starts_and_the_message_says_what_to_do(
    program: Program, variables: dict[str, str], tmp_path: Path
) -> None:
    done = _compose(program, (BASE,), variables, tmp_path)
    assert done.returncode != 0
    assert "GRAFANA_ADMIN_PASSWORD" in done.stderr
    assert "copy .env.example to .env" in done.stderr


def test_the_example_of_an_environment_has_no_password_and_names_only_what_exists() -> None:
    example = (REPOSITORY / ".env.example").read_text()
    compose = "".join((REPOSITORY / name).read_text() for name in (BASE, "deploy/compose.hub.yml"))
    assert re.findall(r"^([A-Z_]+)=(.*)$", example, re.MULTILINE) == [("GRAFANA_ADMIN_PASSWORD", "")]
    for name, default in re.findall(r"^#?([A-Z_]+)=(.*)$", example, re.MULTILINE):
        assert f"${{{name}:" in compose
        assert not default or default.startswith("~") or f"${{{name}:-{default}}}" in compose


def test_vramscope_reserves_the_gpus_and_insists_on_cuda(configure: Configure) -> None:
    service = configure()["services"]["vramscope"]
    devices = service["deploy"]["resources"]["reservations"]["devices"]
    assert devices == [{"driver": "nvidia", "count": -1, "capabilities": ["gpu"]}]
    assert "--device=cuda" in service["command"]


def test_the_gpu_override_asks_for_gpus_and_changes_nothing_else(configure: Configure) -> None:
    real, without = configure(), configure(BASE)
    assert configure(BASE, GPU) == real
    assert real["services"]["vramscope"].pop("deploy")
    assert real == without


def test_the_simulated_override_asks_for_no_gpu_and_changes_nothing_else(configure: Configure) -> None:
    real = configure(BASE)["services"]["vramscope"]
    simulated = configure(BASE, "deploy/compose.simulated.yml")["services"]["vramscope"]
    assert "deploy" not in simulated
    changed = {key for key in real.keys() | simulated.keys() if real.get(key) != simulated.get(key)}
    assert changed == {"build", "command", "image"}
    assert [word for word in simulated["command"] if not word.startswith(("--device", "--capacity"))] == [
        word for word in real["command"] if word != "--device=cuda"
    ]


def test_host_pid_override_shares_process_ids_and_nothing_else(configure: Configure) -> None:
    real = configure(BASE)
    shared = configure(BASE, "deploy/compose.host-pid.yml")
    assert shared["services"]["vramscope"].pop("pid") == "host"
    assert shared == real


def test_webhook_override_needs_the_file_and_changes_only_the_configuration(
    configure: Configure, program: Program, tmp_path: Path
) -> None:
    files = (BASE, "deploy/compose.webhook.yml")
    assert "ALERT_WEBHOOK_URL_FILE" in _compose(program, files, PASSWORD, tmp_path).stderr
    real = configure(BASE)["services"]["alertmanager"]
    sent = configure(*files, ALERT_WEBHOOK_URL_FILE="/url")["services"]["alertmanager"]
    assert sent["secrets"] == [{"source": "alert_webhook_url", "target": "/run/secrets/alert_webhook_url"}]
    assert sent["command"] == [word.replace("alertmanager.yml", "webhook.yml") for word in real["command"]]


def test_nothing_is_downloaded_unless_an_override_allows_it(configure: Configure) -> None:
    real = configure(BASE)["services"]["vramscope"]
    hub = configure(BASE, "deploy/compose.hub.yml")["services"]["vramscope"]
    assert real["environment"] == {"HF_HUB_OFFLINE": "1"}
    assert {key for key in real.keys() | hub.keys() if real.get(key) != hub.get(key)} == {"environment", "secrets"}
    assert hub["environment"] == {
        "HF_HUB_OFFLINE": "0",
        "HF_ENDPOINT": "https://huggingface.co",
        "HF_HUB_CACHE": "/var/cache/vramscope/huggingface/hub",
        "HF_TOKEN_PATH": "/run/secrets/hf_token",
    }
    (writable,) = (volume["target"] for volume in hub["volumes"] if not volume.get("read_only"))
    assert hub["environment"]["HF_HUB_CACHE"].startswith(f"{writable}/")


def test_a_token_of_the_hub_is_a_file_and_nowhere_in_the_configuration(
    program: Program, configure: Configure, tmp_path: Path
) -> None:
    files = (BASE, "deploy/compose.hub.yml")
    (tmp_path / "hf_token").write_text("hf_secretsecretsecret")
    named = configure(*files, HF_TOKEN_FILE=str(tmp_path / "hf_token"), HF_ENDPOINT="https://hub.example.org")
    assert named["secrets"]["hf_token"]["file"] == str(tmp_path / "hf_token")
    assert named["services"]["vramscope"]["environment"]["HF_ENDPOINT"] == "https://hub.example.org"
    assert configure(*files)["secrets"]["hf_token"]["file"] == "/dev/null", "which is no token"
    told = {**PASSWORD, "HF_TOKEN": "hf_secretsecretsecret", "HF_TOKEN_FILE": str(tmp_path / "hf_token")}
    assert "hf_secret" not in _compose(program, files, told, tmp_path).stdout


def test_every_port_is_on_the_loopback(configure: Configure) -> None:
    ports = published(configure(BASE))
    assert [port["published"] for port in ports] == ["9093", "3000", "9090", "10089"]
    assert {port["host_ip"] for port in ports} == {"127.0.0.1"}


def test_every_service_is_hardened_and_watched(configure: Configure) -> None:
    for name, service in configure(BASE)["services"].items():
        assert service["read_only"], name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["restart"] == "unless-stopped", name
        assert service["logging"]["options"] == {"max-file": "3", "max-size": "10m"}, name
        assert "healthcheck" in service or name == "vramscope", name  # the image of vramscope has its own
        assert not service.get("privileged"), name


def test_every_image_that_is_pulled_is_pinned(configure: Configure) -> None:
    for name, service in configure(BASE)["services"].items():
        assert "build" in service or re.fullmatch(r"\w+/\w+:v?\d+\.\d+\.\d+", service["image"]), name


def test_nobody_may_change_anything_in_grafana_without_the_password(configure: Configure) -> None:
    settings = configure(BASE)["services"]["grafana"]["environment"]
    assert settings["GF_SECURITY_ADMIN_PASSWORD"] == PASSWORD["GRAFANA_ADMIN_PASSWORD"]
    assert settings["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert settings["GF_USERS_ALLOW_SIGN_UP"] == "false"


def test_only_what_a_service_writes_is_writable(configure: Configure) -> None:
    services = configure(BASE)["services"]
    writable = {
        name: [volume["target"] for volume in service["volumes"] if not volume.get("read_only")]
        for name, service in services.items()
    }
    assert writable == {
        "vramscope": ["/var/cache/vramscope"],
        "prometheus": ["/prometheus"],
        "alertmanager": ["/alertmanager"],
        "grafana": ["/var/lib/grafana"],
    }


@pytest.mark.parametrize("override", ["simulated", "webhook", "host-pid", "hub"])
def test_the_files_follow_the_compose_specification(
    override: str, configure: Configure, clean: Callable[..., str], tmp_path: Path
) -> None:
    merged = tmp_path / "merged.json"
    files = (BASE, f"deploy/compose.{override}.yml")
    merged.write_text(json.dumps(configure(*files, ALERT_WEBHOOK_URL_FILE="/url")))
    clean("check-jsonschema", "--builtin-schema", "vendor.compose-spec", merged)

"""What Prometheus and Grafana are given to start with. Grafana itself is not here to be asked."""

import json
from collections.abc import Callable
from typing import Any

import yaml

from .conftest import REPOSITORY

PROVISIONING = REPOSITORY / "deploy/grafana/provisioning"
DASHBOARDS = REPOSITORY / "deploy/grafana/dashboards"


def compose() -> dict[str, Any]:
    return yaml.safe_load((REPOSITORY / "docker-compose.yml").read_text())


def test_promtool_finds_no_fault(clean: Callable[..., str]) -> None:
    assert "rules found" in clean("promtool", "check", "config", "deploy/prometheus/prometheus.yml")


def test_grafana_asks_the_prometheus_that_scrapes_at_this_interval() -> None:
    (source, alerts) = yaml.safe_load((PROVISIONING / "datasources/prometheus.yaml").read_text())["datasources"]
    prometheus = yaml.safe_load((REPOSITORY / "deploy/prometheus/prometheus.yml").read_text())
    assert source["url"] == "http://prometheus:9090"
    assert alerts["url"] == "http://alertmanager:9093"
    assert source["jsonData"]["timeInterval"] == prometheus["global"]["scrape_interval"]


def test_every_dashboard_is_provided_and_chooses_the_source_that_is() -> None:
    (source, _) = yaml.safe_load((PROVISIONING / "datasources/prometheus.yaml").read_text())["datasources"]
    (provider,) = yaml.safe_load((PROVISIONING / "dashboards/vramscope.yaml").read_text())["providers"]
    mounts = [volume.split(":")[:2] for volume in compose()["services"]["grafana"]["volumes"]]
    assert ["./deploy/grafana/dashboards", provider["options"]["path"]] in mounts
    paths = sorted(DASHBOARDS.glob("*.json"))
    assert paths
    for path in paths:
        variables = {each["name"]: each for each in json.loads(path.read_text())["templating"]["list"]}
        assert variables["datasource"]["current"]["value"] == source["uid"], path.name


def test_the_home_dashboard_is_one_of_them() -> None:
    home = compose()["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (DASHBOARDS / home.rpartition("/")[2]).is_file()

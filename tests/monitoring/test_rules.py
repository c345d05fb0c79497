"""The rules for Prometheus: promtool's own tests of them, and that texts, runbook, tests and metrics fit together."""

import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.picture import told, until_on_device

from vramscope.collectors._catalog import factories
from vramscope.collectors._frame import Guarded, Sources

ROOT = Path(__file__).parents[2]
RULES = sorted((ROOT / "deploy/prometheus/rules").glob("*.yml"))
RUNBOOK = ROOT / "deploy/runbook.md"
CASES = [path for path in sorted((Path(__file__).parent / "rules").glob("*.yml")) if path.stem != "overrides"]

RUNBOOK_QUERY = re.compile(r"^```promql\n(.*?)^```$", re.DOTALL | re.MULTILINE)

# What Prometheus makes itself for each target.
FROM_PROMETHEUS = {"up"}
WORD = re.compile(r"[A-Za-z_:][\w:]*")
RECORDED = re.compile(r"(vramscope|instance(_(device|model|step))?):[a-z][a-z0-9_]*:[a-z0-9_]+")


@cache
def rules(kind: str) -> dict[str, list[dict[str, Any]]]:
    """The rules of a kind (alert or record) by name."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path in RULES:
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                if kind in rule:
                    found.setdefault(rule[kind], []).append(rule)
    return found


ALERTS = {name: alert for name, (alert,) in rules("alert").items()}


@cache
def metrics_of_the_code() -> set[str]:
    """The name of every sample that a page can have, whether or not there is anything to show now."""
    state = told(until_on_device()).state
    sources = Sources(
        state=lambda: state,
        clock=lambda: 0.0,
        model_names=frozenset,
        step_names=frozenset,
        step_kinds=frozenset(),
        exit_reasons=frozenset(),
    )
    collectors = [factory.create(sources) for factory in factories()] + [Guarded({})]
    families = [family for collector in collectors for family in collector.collect()]
    suffixes = {"counter": ["_total"], "info": ["_info"], "histogram": ["_bucket", "_count", "_sum"]}
    return {family.name + suffix for family in families for suffix in suffixes.get(family.type, [""])}


def named(expr: str) -> set[str]:
    """The metrics and recorded series that an expression names."""
    words = WORD.findall(re.sub(r'"[^"]*"', "", expr))
    return {word for word in words if ":" in word or word == "up" or word.startswith("vramscope")}


def unknown(expr: str) -> set[str]:
    return named(expr) - metrics_of_the_code() - set(rules("record")) - FROM_PROMETHEUS


def cases_of(alert: str) -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """The promtool tests that bear the alert's name: each with its questions about this alert, in order of time."""
    tests = [test for path in CASES for test in yaml.safe_load(path.read_text())["tests"]]
    return [
        (test, [each for each in test["alert_rule_test"] if each["alertname"] == alert])
        for test in tests
        if test["name"].startswith(f"{alert}:")
    ]


def headings() -> Iterator[str]:
    """The anchors of the runbook's headings, as GitHub and GitLab make them for a heading of one word."""
    for line in RUNBOOK.read_text().splitlines():
        if line.startswith("#"):
            yield line.lstrip("# ").lower().replace(" ", "-")


def promtool(*arguments: object) -> None:
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    done = subprocess.run(["promtool", *map(str, arguments)], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_finds_nothing_to_complain_about() -> None:
    promtool("check", "rules", "--lint=all", "--lint-fatal", *RULES)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_alerts_are_silent_before_fire_survive_a_missed_scrape_and_resolve(path: Path) -> None:
    promtool("test", "rules", path)


@pytest.mark.parametrize("name", ALERTS)
def test_each_alert_says_how_grave_it_is_what_is_wrong_where_and_what_to_do(name: str) -> None:
    alert = ALERTS[name]
    assert re.fullmatch(r"Vramscope([A-Z][a-z]+)+", name)
    assert alert["labels"]["severity"] in {"warning", "critical"}
    assert alert["labels"]["resource"]
    annotations = alert["annotations"]
    assert annotations.keys() == {"summary", "description", "runbook"}
    assert annotations["summary"].endswith(".")
    where = "$labels.job" if name == "VramscopeAbsent" else "$labels.instance"
    assert where in annotations["description"]
    assert annotations["runbook"] == f"deploy/runbook.md#{name.lower()}"


def test_the_runbook_has_one_heading_for_each_alert_and_none_for_others() -> None:
    found = Counter(heading for heading in headings() if heading.startswith("vramscope") and "-" not in heading)
    assert found == Counter(name.lower() for name in ALERTS)


def test_the_readme_lists_every_alert_as_the_rules_have_it() -> None:
    listed = re.findall(r"^\| (Vramscope\w+) \| (\w+) \| (\w+) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    labels = [(name, alert["labels"]["severity"], alert["labels"]["resource"]) for name, alert in ALERTS.items()]
    assert sorted(listed) == sorted(labels)


@pytest.mark.parametrize("name", ALERTS)
def test_each_alert_has_two_tests_that_together_show_its_whole_life(name: str) -> None:
    cases = cases_of(name)
    assert len(cases) >= 2
    story, asked = cases[0]
    assert any(re.search(r"stale|\b_", series["values"]) for series in story["input_series"])
    fires = [bool(each.get("exp_alerts")) for each in asked]
    assert fires[0] is fires[-1] is False
    assert fires.count(True) >= (1 if name == "VramscopeAbsent" else 2)  # before and after the missed scrape


@pytest.mark.parametrize("name", [*ALERTS, *rules("record")])
def test_every_series_that_a_rule_names_exists(name: str) -> None:
    for rule in [*rules("alert").get(name, []), *rules("record").get(name, [])]:
        assert unknown(rule["expr"]) == set()


def test_every_series_that_a_query_of_the_runbook_names_exists() -> None:
    queries = RUNBOOK_QUERY.findall(RUNBOOK.read_text())
    assert len(queries) > 10
    assert [query for query in queries if unknown(query)] == []


def test_a_series_that_does_not_exist_would_be_noticed() -> None:
    assert unknown('sum(vramscope_nvml_used_byte{device="up"}) > a:b:c') == {"vramscope_nvml_used_byte", "a:b:c"}
    assert unknown('increase(vramscope_cycles_total{outcome="failed"}[1h])') == set()
    assert "vramscope_step_duration_seconds_bucket" in metrics_of_the_code()


@pytest.mark.parametrize("name", rules("record"))
def test_recorded_series_are_named_level_metric_operation_and_used(name: str) -> None:
    assert RECORDED.fullmatch(name)
    everywhere = [rule["expr"] for kind in ("alert", "record") for each in rules(kind).values() for rule in each]
    assert any(name in named(expr) for expr in everywhere)


def test_the_runbooks_command_turns_paths_into_links(tmp_path: Path) -> None:
    """The command in the runbook's head, run on a copy of the rules."""
    command = next(line.strip() for line in RUNBOOK.read_text().splitlines() if line.strip().startswith("sed "))
    copy = shutil.copytree(RULES[0].parent, tmp_path / "deploy/prometheus/rules")
    subprocess.run(["sh", "-c", command], cwd=tmp_path, check=True, timeout=30)
    text = "".join(path.read_text() for path in sorted(copy.glob("*.yml")))
    found = re.findall(r"^ +runbook_url: (https://\S+/deploy/runbook\.md#\w+)$", text, re.MULTILINE)
    assert len(found) == len(ALERTS)
    promtool("check", "rules", *sorted(copy.glob("*.yml")))

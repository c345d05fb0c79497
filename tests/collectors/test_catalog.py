import logging
import shutil
import subprocess
from pathlib import Path

import pytest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from vramscope.collectors._catalog import build_registry, factories
from vramscope.forecast.predict import DeviceLevels
from vramscope.supervisor.forecaster import ForecastCompared, ForecastMade

from ..picture import (  # noqa: TID252 - tests are not packages
    ALLOCATED,
    HOSTILE,
    PARAMETER_BYTES,
    RESERVED,
    STARTED_AT,
    USED,
    back_and_gone,
    left_behind,
    running,
    step,
    until_on_device,
)

GOLDEN = Path(__file__).parent / "golden"
LEVELS = DeviceLevels(
    parameter_bytes=PARAMETER_BYTES,
    buffer_bytes=128,
    allocated_bytes=ALLOCATED,
    reserved_bytes=RESERVED,
    used_bytes=USED,
)
FORECAST = [
    ForecastMade(at=STARTED_AT + 8, step="to the card", devices={"cuda:0": LEVELS}),
    ForecastCompared(
        at=STARTED_AT + 9,
        step="to the card",
        error_bytes={("cuda:0", "allocated"): 512, ("cuda:0", "reserved"): 0},
        cause="",
    ),
]


@pytest.mark.parametrize(
    "factory", [each for each in factories() if each.name != "build_info"], ids=lambda each: each.name
)
def test_golden_page(page, factory):
    """The model left something behind before; now it lies on the device, and another move is half done."""
    found = page.of(factory.create, left_behind(live=64 << 20), until_on_device(), FORECAST, running())
    assert found == (GOLDEN / f"{factory.name}.prom").read_text(encoding="utf-8")


@pytest.mark.parametrize("factory", factories(), ids=lambda each: each.name)
def test_each_collector_works_before_anything_has_happened(page, factory):
    assert "NaN" not in page.of(factory.create)


def test_promtool_finds_nothing_to_complain_about(page):
    if shutil.which("promtool") is None:
        pytest.skip("promtool is not installed: apt-get install prometheus")
    body = page.whole(until_on_device(), running())
    checked = subprocess.run(
        ["promtool", "check", "metrics"], input=body, capture_output=True, timeout=100, check=False
    )
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_every_sentence_of_help_is_one_sentence(page):
    helps = [
        line for line in page.whole(until_on_device(), running()).decode().splitlines() if line.startswith("# HELP")
    ]
    assert len(helps) > 40
    assert all(line.endswith(".") and ". " not in line for line in helps)


def test_openmetrics_parses_and_no_series_stands_twice(page):
    registry, on_event = build_registry(page.sources)
    page.tell([until_on_device(), back_and_gone(), running()], on_event)
    families = list(text_string_to_metric_families(generate_openmetrics(registry).decode()))
    series = [(sample.name, *sorted(sample.labels.items())) for family in families for sample in family.samples]
    assert len(series) == len(set(series))
    assert len({family.name for family in families}) == len(families)


def test_no_counter_gets_a_series_with_its_time_of_creation(page):
    assert b"_created" not in page.whole(until_on_device())


def test_hostile_names_come_back_as_they_were(page):
    story = step(1.0, "wait", 1.0, name=HOSTILE, model="")
    names = frozenset({HOSTILE})
    registry, on_event = build_registry(type(page.sources)(**{**vars(page.sources), "step_names": lambda: names}))
    page.tell([story], on_event)
    families = text_string_to_metric_families(generate_openmetrics(registry).decode())
    steps = {sample.labels.get("step") for family in families for sample in family.samples}
    assert HOSTILE in steps


def test_a_fault_of_one_collector_is_logged_by_name_and_costs_only_its_series(page, caplog):
    def broken():
        raise RuntimeError("no names today")

    sources = type(page.sources)(**{**vars(page.sources), "model_names": broken})
    registry, on_event = build_registry(sources)
    page.tell([until_on_device()], on_event)
    with caplog.at_level(logging.ERROR):
        text = generate_openmetrics(registry).decode()
    assert 'vramscope_collector_success{collector="models"} 0.0' in text
    assert 'vramscope_collector_success{collector="steps"} 0.0' in text
    assert 'vramscope_collector_success{collector="ledger"} 1.0' in text
    assert "vramscope_model_parameters" not in text
    assert "vramscope_ledger_bytes{" in text
    failed = {record.collector for record in caplog.records}
    assert {"models", "steps"} <= failed
    assert "ledger" not in failed

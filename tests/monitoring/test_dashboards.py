"""The committed dashboards: what the code makes, what Grafana can read, and what a reader needs."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from dashboards import __main__ as builder
from dashboards._looks import OWNER_COLOURS
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from tests.monitoring.grafana import DIRECTORY, METRIC, names, panels, questions, read

from vramscope.memory.owners import OWNERS

SCHEMAS = Path(__file__).parent / "schemas"
# Nothing else catches a misspelt one: Grafana shows "panel plugin not found", and a unit that it does not know as text.
PANEL_TYPES = {"bargauge", "stat", "state-timeline", "table", "timeseries"}
UNITS = {"binBps", "bytes", "locale", "none", "percentunit", "s"}
TRANSFORMATIONS = {"merge", "organize"}
VARIABLES = ["datasource", "instance", "device", "model"]
TITLES = {"fleet", "load-cycles", "model-anatomy", "vram-ledger"}
SHORTEST_DESCRIPTION = 40

every_dashboard = pytest.mark.parametrize("name", names())


def test_the_committed_json_is_what_the_code_makes(tmp_path: Path) -> None:
    (tmp_path / "gone.json").write_text("{}")
    builder.main([str(tmp_path)])
    made = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    committed = {path.name: path.read_text(encoding="utf-8") for path in DIRECTORY.iterdir()}
    assert made == committed, "run `make dashboards` and commit deploy/grafana/dashboards"
    assert set(names()) == TITLES


@every_dashboard
def test_the_sdk_reads_back_every_key(name: str) -> None:
    register_default_plugins()
    dashboard = read(name)
    again = json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder))
    for link in again["links"]:
        assert link.pop("placement") == "inControlsMenu"  # the SDK cannot leave it out
    assert again == dashboard


def _validator(file: str, definition: str) -> jsonschema.protocols.Validator:
    schema = json.loads((SCHEMAS / f"{file}.json").read_text())
    return jsonschema.Draft7Validator({**schema, "$ref": f"#/definitions/{definition}"})


@every_dashboard
def test_dashboard_panels_and_queries_follow_grafanas_schemas(name: str) -> None:
    dashboard = read(name)
    _validator("dashboard", "Dashboard").validate(dashboard)
    for panel in panels(dashboard):
        _validator("dashboard", "Panel").validate(panel)
        for target in panel["targets"]:
            _validator("prometheus", "Dataquery").validate(target)
        kind = panel["type"].replace("-", "")
        if kind == "stat":
            continue
        _validator(kind, "Options").validate(panel["options"])
        if kind != "bargauge":
            _validator(kind, "FieldConfig").validate(panel["fieldConfig"]["defaults"].get("custom", {}))


@pytest.mark.parametrize("broken", [{"fillOpacity": "much"}, {"lineInterpolation": "stepafter"}, {"colour": "red"}])
def test_a_wrong_option_of_a_panel_is_against_its_schema(broken: dict[str, Any]) -> None:
    with pytest.raises(jsonschema.ValidationError):
        _validator("timeseries", "FieldConfig").validate(broken)


@every_dashboard
def test_types_units_and_transformations_are_known_to_grafana(name: str) -> None:
    for panel in panels(read(name)):
        overridden = [
            each["value"]
            for override in panel["fieldConfig"]["overrides"]
            for each in override["properties"]
            if each["id"] == "unit"
        ]
        assert panel["type"] in PANEL_TYPES
        assert {panel["fieldConfig"]["defaults"]["unit"], *overridden} <= UNITS, panel["title"]
        assert {each["id"] for each in panel.get("transformations", [])} <= TRANSFORMATIONS


@every_dashboard
def test_every_panel_tells_a_newcomer_what_it_shows(name: str) -> None:
    dashboard = read(name)
    shown = panels(dashboard)
    assert len(dashboard["description"]) >= SHORTEST_DESCRIPTION
    for panel in shown:
        assert len(panel["description"]) >= SHORTEST_DESCRIPTION, panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["targets"], panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    titles = Counter(panel["title"] for panel in dashboard["panels"])
    assert all(titles)
    assert max(titles.values()) == 1, titles


@every_dashboard
def test_panels_have_ids_of_their_own_and_do_not_overlap(name: str) -> None:
    dashboard = read(name)
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    assert min(ids) >= 1
    taken: set[tuple[int, int]] = set()
    for panel in dashboard["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells


@every_dashboard
def test_links_lead_to_the_other_dashboards_and_keep_choices_and_time(name: str) -> None:
    dashboard = read(name)
    (link,) = dashboard["links"]
    assert (link["type"], link["tags"]) == ("dashboards", ["vramscope"])
    assert link["includeVars"]
    assert link["keepTime"]
    assert dashboard["tags"] == ["vramscope"]
    assert [variable["name"] for variable in dashboard["templating"]["list"]] == VARIABLES


def test_a_click_on_an_instance_of_the_fleet_leads_to_dashboards_that_exist() -> None:
    addresses = {
        link["url"]
        for panel in panels(read("fleet"))
        for override in panel["fieldConfig"]["overrides"]
        for each in override["properties"]
        if each["id"] == "links"
        for link in each["value"]
    }
    uids = {read(name)["uid"] for name in names()}
    assert {address.split("?")[0].removeprefix("/d/") for address in addresses} == uids - {"vramscope-fleet"}
    assert all("var-instance=${__value.text}" in address for address in addresses)
    assert all("${__url_time_range}" in address for address in addresses)


def test_every_owner_of_the_ledger_has_a_colour_and_an_area() -> None:
    assert set(OWNER_COLOURS) == {each.owner for each in OWNERS}
    (panel,) = (panel for panel in panels(read("vram-ledger")) if panel["title"] == "$device: who owns the VRAM")
    asked = [target["expr"] for target in panel["targets"]]
    for place, each in enumerate(OWNERS):
        assert f'owner="{each.owner}"' in asked[place]


def test_owners_have_the_colours_of_the_daemons_own_page() -> None:
    page = (Path(__file__).parents[2] / "daemon/vramscope/web/page.html").read_text(encoding="utf-8")
    for owner, colour in OWNER_COLOURS.items():
        assert owner == "free" or colour in page, owner


@every_dashboard
def test_every_query_is_narrowed_to_the_chosen_instances(name: str) -> None:
    for asked in questions(read(name)):
        if asked.where != "variable instance":
            narrowed = asked.expr.count('{instance=~"$instance"')
            assert narrowed == asked.expr.count("{") >= 1, asked
            assert len(METRIC.findall(asked.expr)) <= narrowed, asked  # fewer where a variable asks by __name__


@every_dashboard
def test_the_data_source_that_is_chosen_first_is_the_one_that_is_provisioned(name: str) -> None:
    provisioned = yaml.safe_load((DIRECTORY.parent / "provisioning/datasources/prometheus.yaml").read_text())
    uids = [each["uid"] for each in provisioned["datasources"] if each["type"] == "prometheus"]
    (variable,) = (each for each in read(name)["templating"]["list"] if each["type"] == "datasource")
    assert [variable["current"]["value"]] == uids
    assert variable["query"] == "prometheus"

"""The committed dashboards as Grafana reads them: their panels, their queries, and variables put into both."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DIRECTORY = ROOT / "deploy/grafana/dashboards"
LABEL = re.compile(r"\{\{\s*(\w+)\s*\}\}")
VALUES = re.compile(r"label_values\((.+), (\w+)\)")
METRIC = re.compile(r"(?<![\w:\"|])(?:\w+:)?vramscope[_:][\w:]+|\bALERTS\b|\bup\b")


def read(name: str) -> dict[str, Any]:
    """A dashboard of the repository, by its file's name without the ending."""
    return json.loads((DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))


def names() -> list[str]:
    return sorted(path.stem for path in DIRECTORY.glob("*.json"))


def panels(dashboard: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All panels that show something, which leaves out the rows' headings."""
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A question that a dashboard asks: an expression, and the labels that it relies on. `where` is for people.

    The rows of a `table` show every label, so it must have no other.
    """

    where: str
    expr: str
    labels: frozenset[str]
    table: bool = False


def questions(dashboard: Mapping[str, Any]) -> Iterator[Asked]:
    """Every query of every panel, annotation and variable."""
    for panel in panels(dashboard):
        columns = _columns(panel)
        for target in panel["targets"]:
            table = target.get("format") == "table"
            labels = columns if table else LABEL.findall(target["legendFormat"])
            yield Asked(where=panel["title"], expr=target["expr"], labels=frozenset(labels), table=table)
    for each in dashboard["annotations"]["list"]:
        texts = " ".join([each["titleFormat"], each["textFormat"]])
        labels = {*LABEL.findall(texts), *each["tagKeys"].split(",")}
        yield Asked(where=f"annotation {each['name']}", expr=each["expr"], labels=frozenset(labels))
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            series, label = VALUES.fullmatch(variable["query"]).groups()
            yield Asked(where=f"variable {variable['name']}", expr=series, labels=frozenset({label}))


def metrics_read(dashboard: Mapping[str, Any]) -> list[str]:
    """Every metric that a dashboard needs, those in a variable's choice of names included."""
    asked = " ".join(each.expr for each in questions(dashboard))
    return sorted({*METRIC.findall(asked), *re.findall(r"\bvramscope_\w+(?=[|\"])", asked)})


def _columns(panel: Mapping[str, Any]) -> set[str]:
    """The labels that a table turns into columns of their own."""
    renamed = [each["options"]["renameByName"] for each in panel.get("transformations", []) if each["id"] == "organize"]
    return {name for names in renamed for name in names if not name.startswith("Value")}


def filled(expr: str, variables: Mapping[str, str], *, interval: str, span: str) -> str:
    """An expression with Grafana's own variables and the dashboard's replaced. Fails if one is left over."""
    own = {"__rate_interval": interval, "__interval": "1s", "__range": span}
    for name, value in {**own, **variables}.items():
        expr = re.sub(rf"\$(?:{name}\b|{{{name}}})", lambda _, value=value: value, expr)
    assert "$" not in expr, expr
    return expr

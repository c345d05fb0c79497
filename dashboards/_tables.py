"""Tables: one query a column, rows that belong together by their labels."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase

from grafana_foundation_sdk.builders import common, table
from grafana_foundation_sdk.models.common import TableCellHeight
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig, DynamicConfigValue, Threshold

from dashboards._looks import words
from dashboards._panels import about
from dashboards._queries import rows


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of values. `levels` colour its cells, `texts` stand for values, `bar` draws the share of `most`."""

    title: str
    expr: str
    unit: str
    decimals: int | None = None
    levels: Sequence[tuple[float | None, str]] = ()
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    bar: bool = False
    most: float | None = None
    width: int = 0

    def properties(self) -> list[DynamicConfigValue]:
        """How the column differs from others, as Grafana's overrides."""
        found: dict[str, object] = {"unit": self.unit}
        if self.decimals is not None:
            found["decimals"] = self.decimals
        if self.most is not None:
            found |= {"min": 0, "max": self.most}
        if self.levels:
            levels = [Threshold(value, colour) for value, colour in self.levels]
            found["thresholds"] = {"mode": "absolute", "steps": levels}
        if self.texts:
            found["mappings"] = words(self.texts)
        if self.levels or self.texts or self.bar:
            found["custom.cellOptions"] = {"type": "gauge", "mode": "basic"} if self.bar else {"type": "color-text"}
        if self.width:
            found["custom.width"] = self.width
        return [DynamicConfigValue(name, value) for name, value in found.items()]


@dataclass(frozen=True, kw_only=True)
class Key:
    """A column of labels; `links` is (title, address) of where each cell leads."""

    label: str
    title: str
    width: int = 0
    links: Sequence[tuple[str, str]] = ()

    def properties(self) -> list[DynamicConfigValue]:
        """As those of Column."""
        found: dict[str, object] = {}
        if self.width:
            found["custom.width"] = self.width
        if self.links:
            found["links"] = [{"title": title, "url": address} for title, address in self.links]
        return [DynamicConfigValue(name, value) for name, value in found.items()]


def grid(title: str, text: str, keys: Sequence[Key], columns: Sequence[Column]) -> table.Panel:
    """Return a table whose rows are the sets of labels `keys`, which every column's query must give and no other."""
    panel = about(table.Panel(), title, text, "none", [rows(column.expr) for column in columns])
    names = {key.label: key.title for key in keys}
    names |= {f"Value #{letter}": column.title for letter, column in zip(ascii_uppercase, columns, strict=False)}
    if len(columns) == 1:
        names["Value"] = columns[0].title  # what Grafana calls it where there is one query only
    organize = {
        "excludeByName": {"Time": True},
        "indexByName": {name: place for place, name in enumerate(names)},
        "renameByName": names,
    }
    panel.with_transformation(DataTransformerConfig("merge", options={}))
    panel.with_transformation(DataTransformerConfig("organize", options=organize))
    looks = [(key.title, key.properties()) for key in keys] + [(each.title, each.properties()) for each in columns]
    for name, properties in looks:
        if properties:
            panel.override_by_name(name, properties)
    sorting = common.TableSortByFieldState().display_name(keys[0].title).desc(False)
    return panel.cell_height(TableCellHeight.SM).show_header(True).sort_by([sorting]).no_value("-")

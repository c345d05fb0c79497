"""The kinds of panels, each set up once: lines, areas and bars over time, a timeline, single numbers and gauges."""

from collections.abc import Sequence
from string import ascii_uppercase
from typing import Protocol, Self, TypeVar

from grafana_foundation_sdk.builders import bargauge, common, stat, statetimeline, timeseries
from grafana_foundation_sdk.builders.dashboard import FieldColor
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.cog.variants import Dataquery
from grafana_foundation_sdk.models.common import (
    BarGaugeDisplayMode,
    BarGaugeNamePlacement,
    BarGaugeValueMode,
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    DataSourceRef,
    GraphDrawStyle,
    LegendDisplayMode,
    LegendPlacement,
    LineInterpolation,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
    VizOrientation,
)
from grafana_foundation_sdk.models.dashboard import DynamicConfigValue, FieldColorModeId

from dashboards._looks import CALM_ONLY, steps
from dashboards._queries import SOURCE, Query


class PanelBuilder(Protocol):
    """What every panel of the SDK can be told."""

    def title(self, title: str) -> Self: ...
    def description(self, description: str) -> Self: ...
    def unit(self, unit: str) -> Self: ...
    def datasource(self, datasource: DataSourceRef) -> Self: ...
    def targets(self, targets: list[Builder[Dataquery]]) -> Self: ...
    def override_by_query(self, query_ref_id: str, properties: list[DynamicConfigValue]) -> Self: ...


Panel = TypeVar("Panel", bound=PanelBuilder)


def about(panel: Panel, title: str, text: str, unit: str, queries: Sequence[Query]) -> Panel:
    """Give a panel its heading, its explanation, its unit and its queries, which are lettered in their order."""
    lettered = list(zip(ascii_uppercase, queries, strict=False))
    panel.title(title).description(text).unit(unit).datasource(SOURCE)
    panel.targets([query.build(letter) for letter, query in lettered])
    for letter, query in lettered:
        if query.colour:
            panel.override_by_query(letter, _look(query))
    return panel


def _look(query: Query) -> list[DynamicConfigValue]:
    colour = DynamicConfigValue("color", {"mode": "fixed", "fixedColor": query.colour})
    if not query.mark:
        return [colour]
    return [
        colour,
        DynamicConfigValue("custom.stacking", {"mode": "none"}),
        DynamicConfigValue("custom.fillOpacity", 0),
        DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [8, 6]}),
        DynamicConfigValue("custom.lineWidth", 2),
    ]


def lines(title: str, text: str, unit: str, *queries: Query) -> timeseries.Panel:
    """Lines over time. Values hold from one scrape to the next, so they are drawn as steps, never as slopes."""
    panel = about(timeseries.Panel(), title, text, unit, queries)
    return (
        panel.line_interpolation(LineInterpolation.STEP_AFTER)
        .line_width(1.5)
        .fill_opacity(0)
        .show_points(VisibilityMode.NEVER)
        .span_nulls(False)
        .legend(_legend())
        .tooltip(_tooltip())
    )


def areas(title: str, text: str, unit: str, *queries: Query) -> timeseries.Panel:
    """Areas stacked on each other, in the order of the queries from the ground up."""
    panel = lines(title, text, unit, *queries).min(0).fill_opacity(75).line_width(0)
    return panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))


def bars(title: str, text: str, unit: str, *queries: Query) -> timeseries.Panel:
    """Bars over time, stacked, for what is counted."""
    panel = areas(title, text, unit, *queries).decimals(0).axis_soft_max(1)
    return panel.draw_style(GraphDrawStyle.BARS).line_interpolation(LineInterpolation.LINEAR).line_width(1)


def timeline(title: str, text: str, *queries: Query) -> statetimeline.Panel:
    """A row for each series that is filled while it has a value."""
    panel = about(statetimeline.Panel(), title, text, "none", queries)
    return (
        panel.color_scheme(FieldColor().mode(FieldColorModeId.FIXED))
        .show_value(VisibilityMode.NEVER)
        .merge_values(True)
        .row_height(0.8)
        .line_width(0)
        .fill_opacity(85)
        .legend(common.VizLegendOptions().show_legend(False).display_mode(LegendDisplayMode.LIST))
        .tooltip(_tooltip())
    )


def number(
    title: str, text: str, unit: str, *queries: Query, levels: Sequence[tuple[float | None, str]] = CALM_ONLY
) -> stat.Panel:
    """One large number a series."""
    panel = about(stat.Panel(), title, text, unit, queries).thresholds(steps(*levels))
    return (
        panel.graph_mode(BigValueGraphMode.NONE)
        .color_mode(BigValueColorMode.VALUE)
        .text_mode(BigValueTextMode.AUTO)
        .orientation(VizOrientation.AUTO)
        .text(common.VizTextDisplayOptions().title_size(13))
        .reduce_options(_last())
        .no_value("-")
    )


def name(title: str, text: str, *queries: Query) -> stat.Panel:
    """What is said by the legend and not by the value."""
    return number(title, text, "none", *queries).text_mode(BigValueTextMode.NAME)


def gauges(
    title: str, text: str, unit: str, *queries: Query, levels: Sequence[tuple[float | None, str]] = CALM_ONLY
) -> bargauge.Panel:
    """A horizontal bar for each series, with its name before it."""
    panel = about(bargauge.Panel(), title, text, unit, queries).thresholds(steps(*levels)).min(0)
    return (
        panel.orientation(VizOrientation.HORIZONTAL)
        .display_mode(BarGaugeDisplayMode.BASIC)
        .value_mode(BarGaugeValueMode.TEXT)
        .name_placement(BarGaugeNamePlacement.AUTO)
        .show_unfilled(True)
        .min_viz_height(16)
        .max_viz_height(40)
        .text(common.VizTextDisplayOptions().title_size(13))
        .reduce_options(_last())
        .no_value("-")
    )


def _last() -> common.ReduceDataOptions:
    return common.ReduceDataOptions().calcs(["lastNotNull"]).fields("").values(False)


def _legend() -> common.VizLegendOptions:
    return (
        common.VizLegendOptions()
        .show_legend(True)
        .display_mode(LegendDisplayMode.LIST)
        .placement(LegendPlacement.BOTTOM)
        .calcs([])
    )


def _tooltip() -> common.VizTooltipOptions:
    return common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)

"""Fleet: many daemons at once; which one is down, near full, failing, leaking or slow, and the way to look into it."""

from collections.abc import Sequence

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from dashboards import _annotations, _variables
from dashboards._limits import CRITICAL_RATIO, USED_RATIO, WARNING_RATIO, over
from dashboards._looks import BAD, FILLING, GOOD, UP, WARNING, ZERO_IS_GOOD, shades_of
from dashboards._page import Line, Page, Section
from dashboards._panels import bars, lines, number
from dashboards._queries import growth, in_range, now, of, over_time
from dashboards._tables import Column, Key, grid

# The job under which the alerts, too, expect the daemons.
UP_SERIES = of("up", job='="vramscope"')
SHOWN = 10
# Moments of a graph over all instances, whatever the time range: a query's cost grows with them, and these are enough
# to see which instance stands out. Over three hours one a minute.
POINTS = 180
SLOW = ((None, GOOD), (1.5, WARNING), (3, BAD))
A_MEBIBYTE = ((None, GOOD), (1 << 20, BAD))
ONE_IS_ODD = ((None, GOOD), (1, WARNING))

FAILED = of("vramscope_cycles_total", outcome='="failed"')
SUCCEEDED = of("vramscope_cycles_total", outcome='="succeeded"')
LEAK = of("vramscope_residue_growth_bytes", "model", where='!="host"')
SECONDS = of("instance_model:vramscope_load_seconds:sum", "model")
USUAL = of("instance_model:vramscope_load_seconds:median1d", "model")
SLOWER = f"{SECONDS} / on (instance, model) {USUAL}"


def _sections() -> Sequence[Section]:
    counts = [_answering(), _silent(), _full(), _filling(), _failing(), _leaking(), _slow(), _wrong()]
    return [
        Section(title="How many", lines=[Line(height=3, panels=[(3, panel) for panel in counts])]),
        Section(
            title="Which (a click on an instance leads to its dashboards)",
            lines=[Line(height=10, panels=[(24, _table())])],
        ),
        Section(title="Alerts that fire", lines=[Line(height=6, panels=[(24, _alerts())])]),
        Section(
            title=f"The {SHOWN} worst over time",
            lines=[
                Line(height=8, panels=[(12, _fullest()), (12, _leaks())]),
                Line(height=8, panels=[(12, _failures()), (12, _slowest())]),
            ],
        ),
    ]


def _answering() -> Builder[Panel]:
    return number("Daemons up", "Daemons that answered Prometheus' last scrape.", "none", now(f"sum({UP_SERIES})"))


def _silent() -> Builder[Panel]:
    return number(
        "Daemons down",
        "Daemons that Prometheus is told to scrape and that did not answer.",
        "none",
        now(f"sum({UP_SERIES} == bool 0)"),
        levels=ZERO_IS_GOOD,
    )


def _full() -> Builder[Panel]:
    return number(
        "Near full",
        "Devices whose VRAM in use is over the critical threshold: the next load is likely to find no room.",
        "none",
        now(f"sum({over(CRITICAL_RATIO)})"),
        levels=ZERO_IS_GOOD,
    )


def _filling() -> Builder[Panel]:
    return number(
        "Over warning",
        "Devices whose VRAM in use is over the warning threshold, those near full included.",
        "none",
        now(f"sum({over(WARNING_RATIO)})"),
        levels=ONE_IS_ODD,
    )


def _failing() -> Builder[Panel]:
    return number(
        "Failing",
        "Daemons with a failed cycle within the time range.",
        "none",
        now(f"sum(({in_range(FAILED)}) > bool 0)"),
        levels=ZERO_IS_GOOD,
    )


def _leaking() -> Builder[Panel]:
    return number(
        "Leaking",
        "Daemons that hold at least 1 MiB of VRAM more after each unload.",
        "none",
        now(f"sum(max by (instance) ({LEAK}) >= bool {1 << 20})"),
        levels=ZERO_IS_GOOD,
    )


def _slow() -> Builder[Panel]:
    return number(
        "Slow loads",
        "Models whose last load took at least 1.5 times the median of the last day. Known after five loads.",
        "none",
        now(f"sum(({SLOWER}) >= bool 1.5)"),
        levels=ONE_IS_ODD,
    )


def _wrong() -> Builder[Panel]:
    error = of("vramscope_forecast_error_bytes", "device")
    return number(
        "Wrong forecast",
        "Daemons whose last step took more or less VRAM than was forecast, by at least a byte.",
        "none",
        now(f"sum(max by (instance) (abs({error})) > bool 0)"),
        levels=ONE_IS_ODD,
    )


def _table() -> Builder[Panel]:
    return grid(
        "Instances",
        "A row for each daemon. Fullest: VRAM in use of its fullest device. Failed and good: cycles within the time "
        "range. Journal: whether it is written, blank without one. Grows: VRAM that is held more after each unload. "
        "Load time: the last load by the median of its last day. A blank is something not known, such as the slope "
        "after fewer than five unloads. Click an instance to look into it.",
        [Key(label="instance", title="Instance", links=_links(), width=200)],
        _columns(),
    )


def _columns() -> Sequence[Column]:
    restarts, failed, good = (
        f"round(sum by (instance) ({in_range(counter)}))"
        for counter in (of("vramscope_worker_restarts_total"), FAILED, SUCCEEDED)
    )
    error = of("vramscope_forecast_error_bytes", "device")
    by = "max by (instance)"
    return [
        Column(title="Up", expr=f"{by} ({UP_SERIES})", unit="none", texts=UP, width=60),
        Column(title="Worker", expr=f"{by} ({of('vramscope_worker_up')})", unit="none", texts=UP, width=75),
        Column(title="Journal", expr=f"{by} ({of('vramscope_journal_up')})", unit="none", texts=UP, width=75),
        Column(
            title="Fullest",
            expr=f"{by} ({of(USED_RATIO)})",
            unit="percentunit",
            decimals=0,
            levels=FILLING,
            bar=True,
            most=1,
        ),
        Column(title="Failed", width=70, expr=failed, unit="none", levels=ZERO_IS_GOOD),
        Column(title="Good", width=70, expr=good, unit="none"),
        Column(
            title="Last success",
            width=115,
            expr=f"time() - {by} ({of('vramscope_cycle_last_success_timestamp_seconds')})",
            unit="s",
            decimals=0,
        ),
        Column(title="Grows", width=95, expr=f"{by} ({LEAK})", unit="bytes", decimals=1, levels=A_MEBIBYTE),
        Column(title="Load time", width=95, expr=f"{by} ({SLOWER})", unit="none", decimals=2, levels=SLOW),
        Column(title="Forecast off", width=110, expr=f"{by} (abs({error}))", unit="bytes", levels=ONE_IS_ODD),
        Column(title="Restarts", width=85, expr=restarts, unit="none", levels=ONE_IS_ODD),
    ]


def _links() -> list[tuple[str, str]]:
    """To the dashboards of one instance, with the time range and the data source."""
    pages = {
        "Load cycles": "vramscope-load-cycles",
        "VRAM ledger": "vramscope-vram-ledger",
        "Model anatomy": "vramscope-model-anatomy",
    }
    chosen = "${datasource:queryparam}&var-instance=${__value.text}&${__url_time_range}"
    return [(title, f"/d/{uid}?{chosen}") for title, uid in pages.items()]


def _alerts() -> Builder[Panel]:
    firing = of("ALERTS", alertname='=~"Vramscope.*"', alertstate='="firing"')
    return grid(
        "Firing alerts",
        "The alerts of deploy/prometheus/rules that fire now, and for how many devices, models or places each. Each "
        "has a heading in deploy/runbook.md that says what it means and what to do. Empty is good.",
        [
            Key(label="instance", title="Instance", links=_links()),
            Key(label="alertname", title="Alert"),
            Key(label="severity", title="Severity"),
        ],
        [Column(title="How many", expr=f"count by (instance, alertname, severity) ({firing})", unit="none")],
    )


def _worst(expr: str) -> str:
    return f"topk({SHOWN}, {expr})"


def _fullest() -> Builder[Panel]:
    return (
        lines(
            "Fullest devices",
            "VRAM in use by all processes, by the device's total.",
            "percentunit",
            over_time(_worst(of(USED_RATIO, "device")), "{{instance}} {{device}}"),
        )
        .min(0)
        .max(1)
        .max_data_points(POINTS)
    )


def _leaks() -> Builder[Panel]:
    return (
        lines(
            "Growth after each unload",
            "VRAM that is held more from one unload to the next. Above 0 for long is a leak.",
            "bytes",
            over_time(_worst(f"max by (instance, where) ({LEAK} > 0)"), "{{instance}} {{where}}"),
        )
        .axis_soft_min(0)
        .max_data_points(POINTS)
        .no_value("nothing grows")
    )


def _failures() -> Builder[Panel]:
    panel = bars(
        "Failed cycles",
        "Cycles that failed around each moment, by daemon.",
        "none",
        over_time(_worst(f"sum by (instance) ({growth(FAILED)}) > 0"), "{{instance}}"),
    )
    panel.decimals(1).color_scheme(shades_of(BAD)).max_data_points(POINTS)
    return panel.no_value("no failure in this time range")


def _slowest() -> Builder[Panel]:
    return (
        lines(
            "Load time by its usual",
            "The last load by the median of the last day: 1 is as ever, 2 twice as long.",
            "none",
            over_time(_worst(SLOWER), "{{instance}} {{model}}"),
        )
        .min(0)
        .max_data_points(POINTS // 2)  # the rules tell it once in two minutes
    )


DASHBOARD = Page(
    uid="vramscope-fleet",
    title="vramscope / Fleet",
    text="All daemons side by side: which is down, near full, failing, leaking or slow.",
    span="3h",
    refresh="30s",
    variables=_variables.all_instances,
    annotations=_annotations.none,
    sections=_sections,
)

"""What is marked on the graphs: steps as spans, failures and restarts as moments."""

from collections.abc import Sequence

from grafana_foundation_sdk.builders.dashboard import AnnotationQuery

from dashboards._looks import BAD, CALM, WARNING
from dashboards._queries import SOURCE, of


def happenings() -> Sequence[AnnotationQuery]:
    """Each can be switched off above the dashboard; pauses are no step worth marking."""
    running = of("vramscope_step_running", "model", kind='!~"wait|hold"')
    failed = of("vramscope_step_runs_total", outcome='=~"failed|timed_out"')
    restarts = of("vramscope_worker_restarts_total")
    return [
        _annotation("Steps", CALM, running, "{{step}}", "kind"),
        _annotation("Failed steps", BAD, f"increase({failed}[1m]) > 0", "{{kind}} {{outcome}}", "kind"),
        _annotation(
            "Worker restarts", WARNING, f"increase({restarts}[1m]) > 0", "worker restarted: {{reason}}", "reason"
        ),
    ]


def none() -> Sequence[AnnotationQuery]:
    """For a dashboard over many machines, where marks would hide the graphs."""
    return []


def _annotation(name: str, colour: str, expr: str, title: str, tags: str) -> AnnotationQuery:
    """A mark wherever the query has a value; Grafana joins neighbouring ones to a span."""
    annotation = AnnotationQuery().name(name).datasource(SOURCE).enable(True).icon_color(colour)
    return annotation.expr(expr).step("15s").title_format(title).text_format("{{instance}}").tag_keys(tags)

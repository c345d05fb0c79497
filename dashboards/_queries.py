"""What a panel asks Prometheus: selectors, and the query with its legend and look."""

from dataclasses import dataclass
from enum import Enum

from grafana_foundation_sdk.builders import prometheus
from grafana_foundation_sdk.models.common import DataSourceRef
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")


class Shape(Enum):
    """How a query is asked: over the time range, at its end, or at its end as the rows of a table."""

    RANGE = "range"
    INSTANT = "instant"
    ROWS = "rows"


@dataclass(frozen=True, kw_only=True)
class Query:
    """One query of a panel. `colour` is fixed where given; a `mark` is a dashed line that is never stacked."""

    expr: str
    legend: str = ""
    shape: Shape = Shape.RANGE
    colour: str = ""
    mark: bool = False

    def build(self, ref: str) -> prometheus.Dataquery:
        """The query under the panel's letter for it."""
        query = prometheus.Dataquery().expr(self.expr).legend_format(self.legend or "__auto").ref_id(ref)
        if self.shape is Shape.ROWS:
            query.format(PromQueryFormat.TABLE)
        return query.range() if self.shape is Shape.RANGE else query.instant()


def over_time(expr: str, legend: str, colour: str = "") -> Query:
    """A line over the time range."""
    return Query(expr=expr, legend=legend, colour=colour)


def mark(expr: str, legend: str, colour: str) -> Query:
    """A dashed line to compare the others with."""
    return Query(expr=expr, legend=legend, colour=colour, mark=True)


def now(expr: str, legend: str = "", colour: str = "") -> Query:
    """The value at the end of the time range."""
    return Query(expr=expr, legend=legend, shape=Shape.INSTANT, colour=colour)


def rows(expr: str) -> Query:
    """A column of a table: its values at the end of the time range, a row for each set of labels."""
    return Query(expr=expr, shape=Shape.ROWS)


def of(metric: str, *labels: str, **fixed: str) -> str:
    """A selector of the instances chosen, narrowed by the variables of the same name as each of `labels`.

    `fixed` gives other matchers as text, such as kind='="load"'.
    """
    chosen = [f'{label}=~"${label}"' for label in ("instance", *labels)]
    return f"{metric}{{{', '.join([*chosen, *(label + matcher for label, matcher in fixed.items())])}}}"


def per_second(selector: str) -> str:
    """How fast a counter grows."""
    return f"rate({selector}[$__rate_interval])"


def growth(selector: str) -> str:
    """By how much a counter grew since the last point of a graph."""
    return f"increase({selector}[$__rate_interval])"


def in_range(selector: str) -> str:
    """By how much a counter grew in the time range that is shown."""
    return f"increase({selector}[$__range])"

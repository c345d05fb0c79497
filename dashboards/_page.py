"""A dashboard as its sections: the grid, the ids, and what all dashboards have in common."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import (
    Dashboard,
    DashboardCursorSync,
    DashboardLinkType,
    GridPos,
    Panel,
    RowPanel,
    VariableModel,
)

WIDTH = 24
TAG = "vramscope"


@dataclass(frozen=True, kw_only=True)
class Line:
    """Panels side by side, each with its width in columns of 24. A unit of height is 38 pixels."""

    height: int
    panels: Sequence[tuple[int, Builder[Panel]]]


@dataclass(frozen=True, kw_only=True)
class Section:
    """A heading and the lines below it. `repeat` names a variable that has a section for each of its values."""

    title: str
    lines: Sequence[Line]
    repeat: str = ""


@dataclass(frozen=True, kw_only=True)
class Page:
    """The plug-in constant DASHBOARD: what the dashboard is about and how its parts are made.

    `span` is the time range and `refresh` the pause between two refreshes, both as Grafana writes them.
    """

    uid: str
    title: str
    text: str
    span: str
    refresh: str
    variables: Callable[[], Sequence[Builder[VariableModel]]]
    annotations: Callable[[], Sequence[builders.AnnotationQuery]]
    sections: Callable[[], Sequence[Section]]

    def build(self) -> Dashboard:
        """The dashboard, with every panel in its place."""
        page = (
            builders.Dashboard(self.title)
            .uid(self.uid)
            .description(self.text)
            .tags([TAG])
            .timezone("browser")
            .time(f"now-{self.span}", "now")
            .refresh(self.refresh)
            .tooltip(DashboardCursorSync.CROSSHAIR)
            .readonly()
            .variables(list(self.variables()))
            .annotations(list(self.annotations()))
            .link(_link())
        )
        made = page.build()
        made.panels = list(_placed(self.sections()))
        return made


def _link() -> builders.DashboardLink:
    """One link to each dashboard of the set, which takes time range and choices along."""
    link = builders.DashboardLink("vramscope").type(DashboardLinkType.DASHBOARDS).tags([TAG])
    return link.as_dropdown(False).include_vars(True).keep_time(True).target_blank(False)


def _placed(sections: Sequence[Section]) -> Iterator[Panel | RowPanel]:
    number, top = 1, 0
    for section in sections:
        yield _heading(section, number, top)
        number, top = number + 1, top + 1
        for line in section.lines:
            left = 0
            for width, builder in line.panels:
                panel = builder.build()
                panel.id_val, panel.grid_pos = number, GridPos(x=left, y=top, w=width, h=line.height)
                yield panel
                number, left = number + 1, left + width
            if left != WIDTH:
                raise ValueError(f"a line of section {section.title!r} is {left} columns wide, expected {WIDTH}")
            top += line.height


def _heading(section: Section, number: int, top: int) -> RowPanel:
    row = builders.Row(section.title).id(number).grid_pos(GridPos(x=0, y=top, w=WIDTH, h=1)).collapsed(False)
    return (row.repeat(section.repeat) if section.repeat else row).build()

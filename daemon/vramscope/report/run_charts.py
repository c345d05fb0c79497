"""The charts of a run: memory over time with its steps, times by phase, forecast against measured, residue."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from vramscope.memory.ledger import FREE
from vramscope.memory.owners import OWNERS
from vramscope.memory.residue import HOST
from vramscope.report import svg
from vramscope.report.sizes import exact, mib, seconds
from vramscope.report.story import Foreseen, Point, RunStory, Span, StepTimes
from vramscope.units import format_bytes, format_seconds

LEFT = 150.0
RIGHT = svg.WIDTH - 10.0
PLOT_HEIGHT = 230.0
LANE = 15.0
WIDEST_LABEL = 280.0
BAR, GAP = 14.0, 8.0
# How much of the width one line of text may take beside a bar.
LABEL = LEFT - 10
PHASES_SHOWN = 12
# Where the model is moved by these, memory changes for a reason that the reader should see.
MARKED = frozenset({"load", "move", "unload", "release", "restart_worker"})


def memory_charts(story: RunStory) -> Iterator[str]:
    """For each device the last cycles with their steps, and the whole run where it is longer."""
    for device in story.devices:
        recent = list(story.recent.get(device, ()))
        if not any(point.owners for point in recent):
            continue
        begin = story.recent_began
        end = max(story.active_until, begin + 0.001)
        total = next((sum(point.owners.values()) for point in reversed(recent) if point.owners), 0)
        cycles = sum(story.cycles.values())
        what = "the whole run" if cycles <= 3 else "the last cycles"  # noqa: PLR2004 - as many as are kept
        yield _memory_chart(f"{device}, {what}, of {mib(total)}", recent, list(story.spans), (begin, end))
        if cycles > 3:  # noqa: PLR2004 - as above
            points = list(story.points[device])
            title = f"{device}, the whole run: the highest use of each stretch of time"
            yield _memory_chart(title, points, [], (story.began, end))


@dataclass(frozen=True)
class _Axes:
    """Where moments and bytes are on a chart of memory over time."""

    begin: float
    end: float
    most_bytes: float
    top: float

    @property
    def bottom(self) -> float:
        return self.top + PLOT_HEIGHT

    def across(self, at: float) -> float:
        return LEFT + (RIGHT - LEFT) * min(1.0, max(0.0, (at - self.begin) / (self.end - self.begin)))

    def up(self, nbytes: float) -> float:
        return self.bottom - PLOT_HEIGHT * nbytes / self.most_bytes


def _memory_chart(title: str, points: Sequence[Point], spans: Sequence[Span], window: tuple[float, float]) -> str:
    owners = [each for each in OWNERS if any(point.owners.get(each.owner) for point in points) and each.owner != FREE]
    parts, height = svg.legend(24, [(each.owner, each.name) for each in owners])
    most = max((point.used_bytes for point in points), default=0) * 1.08 or 1.0
    axes = _Axes(*window, most, 32 + height)
    parts += [svg.text(0, 12, title, "title"), *_grid(axes)]
    for run in _runs(points, axes.end):
        below = [0] * len(run)
        for each in owners:
            above = [low + max(0, point.owners.get(each.owner, 0)) for low, (point, _) in zip(below, run, strict=True)]
            parts.append(svg.area(_outline(axes, run, below, above), each.owner, each.name))
            below = above
    lanes, lanes_height = _lanes(axes, spans)
    parts += [*lanes, svg.line(LEFT, axes.bottom, RIGHT, axes.bottom, "axis")]
    return svg.picture(axes.bottom + 30 + lanes_height, f"Memory by owner on {title}", parts)


def _grid(axes: _Axes) -> Iterator[str]:
    for tick in svg.ticks(axes.most_bytes, binary=True):
        yield svg.line(LEFT, axes.up(tick), RIGHT, axes.up(tick), "grid")
        yield svg.text(LEFT - 8, axes.up(tick) + 4, format_bytes(int(tick)), "soft", "end")
    for tick in svg.ticks(axes.end - axes.begin, count=8):
        yield svg.text(
            axes.across(axes.begin + tick), axes.bottom + 15, format_seconds(tick) if tick else "0", "soft", "middle"
        )


def _runs(points: Sequence[Point], end: float) -> Iterator[list[tuple[Point, float]]]:
    """Stretches in which the owners are known: each point with the moment until which it holds."""
    run: list[tuple[Point, float]] = []
    for index, point in enumerate(points):
        until = points[index + 1].at if index + 1 < len(points) else end
        if point.owners:
            run.append((point, max(until, point.at)))
        elif run:
            yield run
            run = []
    if run:
        yield run


def _outline(
    axes: _Axes, run: Sequence[tuple[Point, float]], below: Sequence[int], above: Sequence[int]
) -> list[tuple[float, float]]:
    """The shape of one owner: its upper edge to the right, then its lower one back. A level holds until the next."""
    upper, lower = [], []
    for (point, until), low, high in zip(run, below, above, strict=True):
        for at in (point.at, until):
            upper.append((axes.across(at), axes.up(high)))
            lower.append((axes.across(at), axes.up(low)))
    return [*upper, *reversed(lower)]


def _lanes(axes: _Axes, spans: Sequence[Span]) -> tuple[list[str], float]:
    """A lane for each kind of step, and a line up through the chart where one begins that changes memory."""
    kinds = list(dict.fromkeys(span.kind for span in spans))
    parts = []
    for number, kind in enumerate(kinds):
        y = axes.bottom + 26 + number * LANE
        parts.append(svg.text(LEFT - 8, y + 10, kind, "soft", "end"))
        parts.append(svg.line(LEFT, y + LANE - 2, RIGHT, y + LANE - 2, "grid"))
        for span in (each for each in spans if each.kind == kind):
            x, until = axes.across(span.start), axes.across(axes.end if span.end is None else span.end)
            outcome = span.outcome.value.replace("_", " ") if span.outcome else "running"
            took = "" if span.end is None else f", {seconds(span.end - span.start)}"
            bad = "" if outcome in {"succeeded", "running"} else " bad"
            size = max(2.0, until - x), LANE - 4
            parts.append(svg.box(x, y, size, f"span{bad}", f"{span.step}: {outcome}{took}"))
            if kind in MARKED:
                parts.append(svg.line(x, axes.top, x, y, "mark"))
    return parts, len(kinds) * LANE


def times_chart(steps: Sequence[StepTimes]) -> str:
    """A bar for each step, of the medians of its phases; empty where there is none."""
    return stacked_times(
        [(each.step, {name: spread.median or 0.0 for name, spread in each.phases.items()}) for each in steps]
    )


def stacked_times(bars: Sequence[tuple[str, Mapping[str, float]]]) -> str:
    """Named bars of phases in seconds, all on one scale; empty where there is none."""
    if not bars:
        return ""
    names = list(dict.fromkeys(phase for _, phases in bars for phase in phases))
    kinds = {name: f"phase{min(number, PHASES_SHOWN - 1)}" for number, name in enumerate(names)}
    most = max(sum(phases.values()) for _, phases in bars) or 1.0
    left = min(WIDEST_LABEL, max(LEFT, svg.TEXT_WIDTH * max(len(step) for step, _ in bars) + 12))
    parts, height = svg.legend(0, [(kinds[name], name) for name in names])
    y, room = height + 8, RIGHT - left - 80
    for step, phases in bars:
        parts.append(svg.text(left - 8, y + 11, svg.shortened(step, left - 10), "", "end"))
        x = left
        for name, duration in phases.items():
            width = room * duration / most
            parts.append(svg.box(x, y, (width, BAR), kinds[name], f"{step}, {name}: {seconds(duration)}"))
            x += width
        parts.append(svg.text(x + 6, y + 11, seconds(sum(phases.values())), "soft"))
        y += BAR + GAP
    return svg.picture(y, "Median time of each step by phase", parts)


def forecast_chart(foreseen: Sequence[Foreseen]) -> str:
    """For each step and device two bars, what was measured, each with a mark where it was foreseen."""
    shown = [each for each in foreseen if any(each.forecast.values()) or any(each.measured.values())]
    if not shown:
        return ""
    most = max(nbytes for each in shown for told in (each.forecast, each.measured) for nbytes in told.values()) or 1
    entries = [
        ("parameters", "allocated, measured"),
        ("allocator_cache", "reserved, measured"),
        ("foreseen", "forecast"),
    ]
    parts, height = svg.legend(0, entries)
    y, room = height + 8, RIGHT - LEFT - 170
    several = len({each.device for each in shown}) > 1
    for each in shown:
        name = f"{each.step}, {each.device}" if several else each.step
        parts.append(svg.text(LEFT - 8, y + 16, svg.shortened(name, LABEL), "", "end"))
        for quantity, kind in (("allocated", "parameters"), ("reserved", "allocator_cache")):
            told, wanted = each.measured.get(quantity, 0), each.forecast.get(quantity, 0)
            title = f"{name}, {quantity}: measured {exact(told)}, forecast {exact(wanted)} bytes"
            parts.append(svg.box(LEFT, y, (room * told / most, 9), kind, title))
            parts.append(svg.box(LEFT + room * wanted / most - 1, y - 2, (3, 13), "foreseen", title))
            verdict = "exact" if told == wanted else f"{told - wanted:+,} bytes"
            parts.append(
                svg.text(LEFT + room * max(told, wanted) / most + 8, y + 9, f"{mib(told)}, {verdict}", "soft small")
            )
            y += 13
        y += GAP
    return svg.picture(y, "Forecast against measured, after each step", parts)


def residue_charts(story: RunStory) -> Iterator[str]:
    """What was left over the cycles: on devices, and in RAM, which differ too much for one scale."""
    for places, title in ((False, "devices"), (True, "host (RAM and swap of the worker)")):
        series = {
            f"{model}, {where}" if not places else model: list(told)
            for (model, where), told in story.residues.items()
            if (where == HOST) is places
        }
        if series:
            yield _residue_chart(title, series)


def _residue_chart(title: str, series: Mapping[str, Sequence[tuple[int, int]]]) -> str:
    cycles = [cycle for told in series.values() for cycle, _ in told]
    first, last = min(cycles), max(cycles)
    most = max(nbytes for told in series.values() for _, nbytes in told) * 1.1 or 1.0
    names = [(f"phase{number % PHASES_SHOWN}", name) for number, name in enumerate(series)]
    parts, height = svg.legend(24, names)
    parts.insert(0, svg.text(0, 12, title, "title"))
    top, plot = 24 + height + 8, 110.0 if most > 1 else 16.0  # a line of nothing needs no room

    def across(cycle: int) -> float:
        return LEFT + (RIGHT - 20 - LEFT) * ((cycle - first) / (last - first) if last > first else 0.5) + 10

    for tick in svg.ticks(most if most > 1 else 0, binary=True, count=4):
        y = top + plot * (1 - tick / most)
        parts += [svg.line(LEFT, y, RIGHT, y, "grid")]
        parts += [svg.text(LEFT - 8, y + 4, format_bytes(int(tick)), "soft", "end")]
    for (kind, name), told in zip(names, series.values(), strict=True):
        points = [(across(cycle), top + plot * (1 - nbytes / most)) for cycle, nbytes in told]
        parts.append(svg.curve(points, kind))
        if len(told) <= 60:  # noqa: PLR2004 - more dots than that are a line
            for (x, y), (cycle, nbytes) in zip(points, told, strict=True):
                parts.append(svg.dot(x, y, kind, f"{name}, cycle {cycle}: {exact(nbytes)} bytes"))
    marks = sorted({first, last, *(first + round((last - first) * part / 6) for part in range(1, 6))})
    for cycle in marks:
        parts.append(
            svg.text(
                across(cycle), top + plot + 16, f"cycle {cycle}" if cycle == first else str(cycle), "soft", "middle"
            )
        )
    parts.append(svg.line(LEFT, top + plot, RIGHT, top + plot, "axis"))
    return svg.picture(top + plot + 24, f"Residue over cycles, {title}", parts)

"""Shows a forecast: a row per step, the peak, and the first step that does not fit with what would help."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vramscope.forecast.predict import DeviceLevels
from vramscope.forecast.walk import Misfit, PlanForecast, StepForecast
from vramscope.plan.schema import Plan
from vramscope.report.fitting import fits
from vramscope.report.sizes import UNKNOWN, exact, mib
from vramscope.supervisor.survey import Survey

NARROWEST = 120  # columns below which the table would wrap; a console that is no terminal can be as wide as it likes


def print_forecast(
    plan: Plan,
    known: Survey,
    forecast: PlanForecast,
    notes: Sequence[str],
    console: Console,
) -> None:
    """Show everything that a person wants to know before starting the plan."""
    if not console.is_terminal:
        console.width = max(console.width, NARROWEST)
    for name, budget in known.budgets.items():
        _say(
            console,
            f"{_label(known.backend)} {name}: {mib(budget.total_bytes)}, context {mib(budget.context_bytes)}, "
            f"others hold {mib(budget.other_bytes)}",
        )
    table = _table(plan, forecast, known)
    if not console.is_terminal or fits(table, console):
        console.print(table)
    else:
        for line in _lines(plan, forecast, known):
            _say(console, line)
    _say(console, _cycles(plan, forecast))
    for name in known.budgets:
        _say(console, _peak(name, forecast.steps))
    if (misfit := forecast.first_misfit) is not None:
        _say(console, _misfit(plan, known, misfit))
        for remedy in misfit.remedies:
            _say(console, f"  {remedy}")
    for note in notes:
        _say(console, f"note: {note}")


def _say(console: Console, line: str) -> None:
    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _label(backend: str) -> str:
    return "simulated device" if backend == "simulated" else "device"


def _table(plan: Plan, forecast: PlanForecast, known: Survey) -> Table:
    table = Table(title=Text(f"Forecast of {plan.name}"), title_justify="left")
    for heading in ("cycle", "line"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("step", overflow="fold")
    table.add_column("RAM", justify="right", no_wrap=True)
    table.add_column("device", no_wrap=True)
    for heading in ("parameters", "allocated", "reserved", "used"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in forecast.steps:
        for cells in _cells(row, _verdict(row, known, forecast.first_misfit)):
            table.add_row(*(Text(cell) for cell in cells))
    return table


def _lines(plan: Plan, forecast: PlanForecast, known: Survey) -> Iterator[str]:
    """The same for a terminal that has no room for the table: a line a step, and one below it for each device."""
    yield f"Forecast of {plan.name}"
    for row in forecast.steps:
        head = f"cycle {row.cycle}, line {row.line}: {row.step}"
        if row.levels is None:
            yield f"{head}: {_verdict(row, known, forecast.first_misfit)}"
            continue
        yield f"{head}: RAM {mib(row.levels.host_bytes)}"
        for name, levels in row.levels.devices.items():
            parameters, allocated, reserved, used = _figures(levels)
            yield f"  {name}: parameters {parameters}, allocated {allocated}, reserved {reserved}, used {used}"


def _verdict(row: StepForecast, known: Survey, misfit: Misfit | None) -> str:
    """Why a step has no figures."""
    if row.fits is False:
        if misfit is not None and misfit.device is None:
            return "no such part"
        return "does not fit" if misfit is None or misfit.device in known.budgets else "fails"
    return "not known" if row.model in known.problems else "not reached"


def _cells(row: StepForecast, verdict: str) -> list[list[str]]:
    """One line a device; the first one carries what belongs to the step."""
    head = [str(row.cycle), str(row.line), row.step]
    if row.levels is None:
        return [[*head, UNKNOWN, verdict, *[UNKNOWN] * 4]]
    lines: list[list[str]] = []
    for name, levels in row.levels.devices.items():
        lead = [*head, mib(row.levels.host_bytes)] if not lines else ["", "", "", ""]
        lines.append([*lead, name, *_figures(levels)])
    return lines


def _figures(levels: DeviceLevels) -> list[str]:
    return [
        mib(quantity)
        for quantity in (levels.parameter_bytes, levels.allocated_bytes, levels.reserved_bytes, levels.used_bytes)
    ]


def _cycles(plan: Plan, forecast: PlanForecast) -> str:
    walked, period = forecast.cycles_walked, forecast.period
    asked = "forever" if plan.repeat is None else _counted(plan.repeat, "cycle")
    if not period:
        return f"the plan runs {asked}; {_counted(walked, 'cycle')} shown"
    if period == 1:
        return f"the plan runs {asked}; from cycle {walked + 1} on every cycle is as cycle {walked}"
    first = walked - period + 1
    return f"the plan runs {asked}; from cycle {walked + 1} on cycles {first} to {walked} come again and again"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _misfit(plan: Plan, known: Survey, misfit: Misfit) -> str:
    absent = misfit.device if misfit.device not in known.budgets else None
    fails = "fails" if misfit.device is None or absent else f"does not fit on {misfit.device}"
    where = f"{plan.path}:{misfit.line}: step {misfit.step!r} {fails} in cycle {misfit.cycle}"
    if absent:
        more = f"; --capacity {absent}=SIZE adds it" if known.backend == "simulated" else ""
        return f"{where}: {misfit.message} (there is {', '.join(known.budgets)}{more})"
    if misfit.shortfall_bytes is None:
        return f"{where}: {misfit.message}"
    return f"{where}: {exact(misfit.shortfall_bytes)} bytes ({mib(misfit.shortfall_bytes)}) more are needed"


def _peak(device: str, rows: Sequence[StepForecast]) -> str:
    reached = [(row.levels.devices[device], row.step) for row in rows if row.levels is not None]
    if not reached:
        return f"peak on {device}: {UNKNOWN}"
    levels, step = max(reached, key=lambda pair: pair[0].used_bytes)
    return (
        f"peak on {device}: {exact(levels.used_bytes)} bytes used ({mib(levels.used_bytes)}), "
        f"{exact(levels.allocated_bytes)} allocated and {exact(levels.reserved_bytes)} reserved, after {step!r}"
    )

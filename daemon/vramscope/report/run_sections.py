"""A run as a report: what ran with what, what each model took, how long it took, forecast, residue, and faults."""

from collections.abc import Iterator
from datetime import UTC, datetime

from vramscope.events import Outcome
from vramscope.memory.leftovers import leftovers
from vramscope.memory.residue import HOST, trend
from vramscope.report.row import ResultRow, Station
from vramscope.report.run import ReadRun
from vramscope.report.run_charts import forecast_chart, memory_charts, residue_charts, times_chart
from vramscope.report.sheet import Report, Section, Sheet
from vramscope.report.sizes import UNKNOWN, exact, mib, rate, seconds
from vramscope.report.story import RunStory, StepTimes
from vramscope.units import format_count

ROWS_SHOWN = 12
STEPS_SHOWN = 60
SIMULATED = "simulated"
PACED = "the time of a copy to or from a simulated device is a setting (--bandwidth), not measured"


def run_report(run: ReadRun) -> Report:
    """Everything that is told of one run."""
    story = run.story
    sections = (
        about(run),
        _results(story),
        _memory(story),
        _times(story),
        _forecast(story),
        _residue(story),
        _faults(story),
    )
    name = story.store.state.plan.name
    return Report(
        title=f"vramscope: {name or 'a run'}",
        sections=tuple(section for section in sections if section.sheets or section.notes or section.charts),
    )


def about(run: ReadRun) -> Section:
    """What ran, with what, and how it went."""
    facts = tuple((name, text) for name, text in run_facts(run).items() if text)
    return Section(title="The run", sheets=(Sheet(headings=("", ""), rows=facts, texts=(0, 1)),), notes=run.notes)


def run_facts(run: ReadRun) -> dict[str, str]:
    """What a run was, name by name, its versions among them; what is not known is empty."""
    story = run.story
    plan, worker = story.store.state.plan, story.store.state.worker
    backend = "simulated, no GPU was used" if worker.backend == SIMULATED else worker.backend
    number = f", run {story.number} of {run.runs}" if run.runs > 1 else ""
    return {
        "journal": f"{run.path}{number}",
        "plan": f"{plan.name} ({plan.path}, sha256 {plan.sha256[:12]})" if plan.sha256 else "",
        "from": moment(story.began),
        "to": moment(story.last_at),
        "outcome": plan.outcome.value.replace("_", " ") if plan.outcome else "",
        "cycles": _counted(story.cycles),
        "cycle": _spread_text(story.cycle_seconds.median, story.cycle_seconds.least, story.cycle_seconds.most),
        "worker restarts": _counted(story.restarts),
        "devices": "; ".join(f"{each.device} {each.name}, {mib(each.total_bytes)}" for each in worker.devices),
        "backend": f"{backend}: {worker.reason}" if worker.reason else backend,
        **{name: story.versions[name] for name in sorted(story.versions) if story.versions[name]},
    }


def moment(at: float) -> str:
    """A time of the epoch as people read it."""
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (OverflowError, ValueError, OSError):
        return UNKNOWN


def both(nbytes: int | None) -> str:
    """MiB, and every byte."""
    return UNKNOWN if nbytes is None else f"{mib(nbytes)} ({exact(nbytes)})"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count:,} {what.replace('_', ' ')}" for what, count in sorted(counts.items()))


def _spread_text(median: float | None, least: float, most: float) -> str:
    return "" if median is None else f"median {seconds(median)}, from {seconds(least)} to {seconds(most)}"


def _results(story: RunStory) -> Section:
    rows = story.results.rows()
    shown = rows[-ROWS_SHOWN:]
    lead = "Allocated and reserved are totals of the device, all models on it together."
    more = () if len(rows) == len(shown) else (f"the last {len(shown)} rows; the journal holds more",)
    models = Sheet(
        headings=("model", "cycle", "outcome", "parameters", "dtype", "theoretical", "files", "worker RAM", "where"),
        rows=tuple(_model_cells(row) for row in shown),
        texts=(0, 2, 4, 8),
    )
    stations = Sheet(
        headings=(
            "model",
            "cycle",
            "allocated before",
            "allocated on device",
            "reserved on device",
            "driver, this process",
            "allocated after unload",
            "reserved after release",
            "left behind",
        ),
        rows=tuple(_station_cells(row) for row in shown),
    )
    why = next((row for row in reversed(rows) if row.differences), None)
    notes = () if why is None else tuple(f"{why.model}, cycle {why.cycle}: {each.text}" for each in why.differences)
    return Section(title="Results", lead=lead, sheets=(models, stations) if shown else (), notes=(*more, *notes))


def _model_cells(row: ResultRow) -> tuple[str, ...]:
    outcome = row.outcome.value.replace("_", " ") if row.outcome else "running"
    if row.cycle_outcome not in (None, Outcome.SUCCEEDED, row.outcome):
        outcome += f", cycle {row.cycle_outcome.value}" if row.cycle_outcome else ""
    where = row.device or UNKNOWN
    return (
        row.model,
        str(row.cycle),
        outcome,
        exact(row.parameters),
        row.dtype or UNKNOWN,
        both(row.theoretical_bytes),
        both(row.file_bytes),
        mib(row.resident_bytes),
        (row.lives or where) if row.was_on_device else f"never on {where}",
    )


def _station_cells(row: ResultRow) -> tuple[str, ...]:
    on_device = row.on_device
    return (
        row.model,
        str(row.cycle),
        both(_allocated(row.before)),
        both(_allocated(on_device)),
        both(on_device.reserved_bytes if on_device else None),
        both(row.device_used_bytes),
        both(_allocated(row.after_unload)),
        both(row.after_release.reserved_bytes if row.after_release else None),
        both(row.left_bytes(row.residue)),
    )


def _allocated(station: Station | None) -> int | None:
    return station.allocated_bytes if station else None


def _memory(story: RunStory) -> Section:
    quantities = ("allocated", "reserved", "used")
    rows = tuple(
        (device, quantity, both(peak.nbytes[quantity]), peak.step.get(quantity) or UNKNOWN)
        for device in story.devices
        for peak in (story.peaks.get(device),)
        if peak
        for quantity in quantities
        if quantity in peak.nbytes
    )
    sheet = Sheet(headings=("device", "quantity", "most", "first in step"), rows=rows, texts=(0, 1, 3))
    return Section(
        title="Memory over time, by owner",
        charts=tuple(memory_charts(story)),
        sheets=(sheet,) if rows else (),
    )


def _times(story: RunStory) -> Section:
    steps = [each for each in story.steps.values() if each.seconds.count][:STEPS_SHOWN]
    totals = Sheet(
        headings=("step", "kind", "runs", "median", "least", "most"),
        rows=tuple(
            (
                each.step,
                each.kind,
                _counted(each.runs),
                seconds(each.seconds.median),
                seconds(each.seconds.least),
                seconds(each.seconds.most),
            )
            for each in steps
        ),
        texts=(0, 1, 2),
    )
    phases = Sheet(
        headings=("step", "phase", "median", "least", "most", "bytes", "rate"),
        rows=tuple(cells for each in steps for cells in _phase_cells(each)),
        texts=(0, 1),
    )
    chart = times_chart([each for each in steps if each.phases])
    return Section(
        title="Load and move times, by phase",
        lead="Runs that succeeded. A step is in one phase at a time; what is in none is the step's own work.",
        charts=(chart,) if chart else (),
        sheets=tuple(sheet for sheet in (totals, phases) if sheet.rows),
        notes=(PACED,) if steps and story.store.state.worker.backend == SIMULATED else (),
    )


def _phase_cells(step: StepTimes) -> Iterator[tuple[str, ...]]:
    for name, spread in step.phases.items():
        nbytes, median = step.nbytes.get(name), spread.median
        speed = rate(nbytes, median) if nbytes is not None and median else UNKNOWN
        figures = seconds(median), seconds(spread.least), seconds(spread.most)
        yield (step.step, name, *figures, exact(nbytes), speed)


def _forecast(story: RunStory) -> Section:
    foreseen = list(story.foreseen.values())
    rows = tuple(
        (
            each.step,
            each.device,
            quantity,
            exact(each.forecast.get(quantity)),
            exact(each.measured.get(quantity)),
            f"{each.measured[quantity] - each.forecast[quantity]:+,}".replace("+0", "0"),
        )
        for each in foreseen[:STEPS_SHOWN]
        for quantity in ("allocated", "reserved")
        if quantity in each.forecast and quantity in each.measured
    )
    compared = sum(each.compared for each in foreseen)
    worst = max((each.largest_error_bytes for each in foreseen), default=0)
    causes = dict.fromkeys(each.cause for each in foreseen if each.cause)
    verdict = f"compared after {format_count(compared)} steps; the largest difference was {exact(worst)} bytes"
    lost = story.store.state.forecast_lost
    chart = forecast_chart(foreseen[:STEPS_SHOWN])
    return Section(
        title="Forecast against measured",
        lead="What torch should hold on a device after each step, and what it held, in bytes, in the step's last run.",
        charts=(chart,) if chart else (),
        sheets=(
            Sheet(
                headings=("step", "device", "quantity", "forecast", "measured", "difference"),
                rows=rows,
                texts=(0, 1, 2),
            ),
        )
        if rows
        else (),
        notes=(*((verdict,) if compared else ()), *causes, *((f"no forecast at the end: {lost}",) if lost else ())),
    )


def _residue(story: RunStory) -> Section:
    rows = []
    for (model, where), series in story.residues.items():
        told = [nbytes for _, nbytes in series]
        levels = story.store.state.levels.get((model, where), ())
        growth = trend(levels)
        rows.append(
            (
                model,
                where,
                both(told[-1]),
                both(max(told)),
                UNKNOWN if growth is None else f"{growth:+,.0f} bytes".replace("+0 ", "0 "),
            )
        )
    last = [
        f"{residue.model}, {left.where}: {cause.text}"
        for residue in story.store.state.residues.values()
        for left in leftovers(residue)
        if left.where != HOST or left.nbytes
        for cause in left.causes
    ]
    return Section(
        title="Residue over cycles",
        lead="What a model left behind after its unload (and release), beyond the level before its load.",
        charts=tuple(residue_charts(story)),
        sheets=(
            Sheet(headings=("model", "place", "last cycle", "most", "growth a cycle"), rows=tuple(rows), texts=(0, 1)),
        )
        if rows
        else (),
        notes=tuple(dict.fromkeys(last)),
    )


def _faults(story: RunStory) -> Section:
    rows = tuple((moment(each.at), each.what, each.detail) for each in story.store.state.faults)
    sheet = Sheet(headings=("when", "what", "detail"), rows=rows, texts=(0, 1, 2))
    return Section(title="Faults", lead="The last ones.", sheets=(sheet,) if rows else ())

"""Shows the results: a table on a terminal that has room for it, plain lines that can be searched anywhere else."""

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vramscope.report.fitting import fits
from vramscope.report.ledger_view import print_ledgers
from vramscope.report.row import ResultRow, Station
from vramscope.report.sizes import UNKNOWN, exact, mib, seconds

STATIONS = ("before load", "in RAM", "on device", "after unload", "after release")
ON_HOST, ON_DEVICE = 1, 2
LEFT = {3: "residue_after_unload", 4: "residue_after_release"}
SIMULATED = "simulated"
ROWS_SHOWN = 10
TOTALS = "allocated and reserved are totals of the device, all models on it together"


def print_results(rows: Sequence[ResultRow], console: Console) -> None:
    """Show the last rows, oldest first, then the ledger of each device; nothing where there are none."""
    if not rows:
        return
    _print_rows(rows, console)
    print_ledgers(rows, console)


def _print_rows(rows: Sequence[ResultRow], console: Console) -> None:
    shown = rows[-ROWS_SHOWN:]
    title = _title(shown) + (f", the last {len(shown)} rows of {len(rows)}" if len(rows) > len(shown) else "")
    table = _table(shown, title)
    if console.is_terminal and fits(table, console):
        console.print(table)
        return
    for line in (title, TOTALS, *(line for row in shown for line in _lines(row))):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _title(rows: Iterable[ResultRow]) -> str:
    places = sorted({_place(row) for row in rows if row.device})
    return f"Results on {'; '.join(places)}" if places else "Results"


def _place(row: ResultRow) -> str:
    kind = "simulated device" if row.backend == SIMULATED else "device"
    name = f", {row.device_name}" if row.device_name else ""
    return f"{kind} {row.device}{name}"


def _table(rows: Sequence[ResultRow], title: str) -> Table:
    table = Table(
        title=Text(title), title_justify="left", show_lines=True, caption=Text(TOTALS), caption_justify="left"
    )
    table.add_column("model", overflow="fold", max_width=26)
    table.add_column("device total", no_wrap=True)
    for heading in STATIONS:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(Text("\n".join(_about(row))), *(Text("\n".join(column)) for column in _columns(row)))
    return table


def _about(row: ResultRow) -> Iterable[str]:
    yield f"{row.model}, cycle {row.cycle}"
    yield row.whereabouts
    yield f"{exact(row.parameters)} {row.dtype or ''}".strip()
    yield f"theory {mib(row.theoretical_bytes)}"
    yield f"  {exact(row.theoretical_bytes)}"
    yield f"file {mib(row.file_bytes)}"
    yield f"load {seconds(row.load_seconds)}"
    yield f"to device {seconds(row.move_seconds)}"
    yield f"back {seconds(row.move_back_seconds)}"
    yield _outcome(row)


def _outcome(row: ResultRow) -> str:
    """How the model's own steps went, and the cycle where that went another way."""
    if row.outcome is None:
        return "running"
    own, cycle = row.outcome.value.replace("_", " "), row.cycle_outcome
    return own if cycle in (None, row.outcome) else f"{own}, cycle {cycle.value.replace('_', ' ')}"


def _columns(row: ResultRow) -> Iterable[list[str]]:
    """The column of quantities, then one column a station; MiB and bytes take a line each, and so does the forecast."""
    yield [
        "allocated",
        "",
        "  forecast",
        "reserved",
        "",
        "  forecast",
        "driver: own",
        "",
        "(worker RAM)",
        "left behind",
        "",
    ]
    for position, station in enumerate(row.stations):
        foreseen = row.forecast if position == ON_DEVICE else None
        column = [
            line
            for name in ("allocated_bytes", "reserved_bytes")
            for line in (
                mib(getattr(station, name, None)),
                exact(getattr(station, name, None)),
                _exactly(foreseen, name),
            )
        ]
        if position == ON_DEVICE:
            column += [mib(row.device_used_bytes), exact(row.device_used_bytes)]
        elif position == ON_HOST:
            column += ["", "", mib(row.resident_bytes)]
        elif position in LEFT:
            left = row.left_bytes(getattr(row, LEFT[position]))
            column += ["", "", "", mib(left), exact(left)]
        yield column


def _exactly(station: Station | None, name: str) -> str:
    return exact(getattr(station, name)) if station else ""


def _lines(row: ResultRow) -> Iterable[str]:
    about = f"{exact(row.parameters)} parameters {row.dtype or UNKNOWN}"
    yield f"{row.model} cycle {row.cycle}: {about}, {row.whereabouts}, {_outcome(row)}"
    yield f"  theoretical {_both(row.theoretical_bytes)}, file {_both(row.file_bytes)}"
    for position, station in enumerate(row.stations):
        if station:
            figures = [f"allocated {_both(station.allocated_bytes)}", f"reserved {_both(station.reserved_bytes)}"]
            if position == ON_DEVICE:
                figures.append(f"driver {_both(row.device_used_bytes)}")
                if row.forecast:
                    foreseen = f"{exact(row.forecast.allocated_bytes)} and {exact(row.forecast.reserved_bytes)}"
                    figures.append(f"forecast {foreseen}")
            elif position == ON_HOST:
                figures.append(f"worker RAM {mib(row.resident_bytes)}")
            elif position in LEFT:
                figures.append(f"left behind {_both(row.left_bytes(getattr(row, LEFT[position])))}")
            yield f"  {STATIONS[position]}: {', '.join(figures)}"
    moves = f"to device {seconds(row.move_seconds)}, back {seconds(row.move_back_seconds)}"
    yield f"  time: load {seconds(row.load_seconds)}, {moves}"


def _both(nbytes: int | None) -> str:
    return UNKNOWN if nbytes is None else f"{mib(nbytes)} ({exact(nbytes)})"

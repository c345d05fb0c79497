"""The ledger of each device as a bar with names and bytes, why its figures differ, and what each model left behind.

A terminal gets the bar and wrapped text; anything else gets one line a fact, which can be searched.
"""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from vramscope.memory.ledger import (
    ALLOCATOR_CACHE,
    ALLOCATOR_ROUNDING,
    BUFFERS,
    CUDA_CONTEXT,
    DRIVER_RESERVED,
    FREE,
    OTHER_PROCESSES,
    OUTSIDE_ALLOCATOR,
    PARAMETERS,
)
from vramscope.memory.leftovers import Leftover, leftovers
from vramscope.memory.owners import Share, shares
from vramscope.memory.residue import AFTER_RESET
from vramscope.report.row import ResultRow
from vramscope.report.sizes import exact, mib, percent

# How a part of the bar looks: a letter where there is no colour, and a colour that the colour-blind tell apart from its
# neighbours (Okabe and Ito, https://jfly.uni-koeln.de/color/).
LOOKS = {
    PARAMETERS: ("P", "#0072b2"),
    BUFFERS: ("B", "#56b4e9"),
    ALLOCATOR_ROUNDING: ("R", "#cc79a7"),
    ALLOCATOR_CACHE: ("C", "#e69f00"),
    CUDA_CONTEXT: ("X", "#009e73"),
    OTHER_PROCESSES: ("O", "#d55e00"),
    OUTSIDE_ALLOCATOR: ("U", "#d55e00"),
    FREE: (".", "#808080"),
    DRIVER_RESERVED: ("D", "#b0b0b0"),
}
UNKNOWN_LOOK = ("?", "default")
FULL_BLOCK, LIGHT_SHADE = "█", "░"
WIDEST_BAR = 100
INDENT = 2
_AFTER = {AFTER_RESET: "the clean-up of its failed cycle"}
# Below this share of the device, what is in use gets a bar of its own.
ENLARGED_BELOW = 0.5


def print_ledgers(rows: Sequence[ResultRow], console: Console) -> None:
    """Show the last ledger of each device with a model on it, and what each model left behind last."""
    for row in _last(row for row in rows if row.ledger):
        if console.is_terminal:
            _draw(row, console)
        else:
            _say(console, *_lines(row))
    for row in {row.model: row for row in rows if row.residue}.values():
        _tell_residue(row, console)


def cells(held: Sequence[Share], width: int) -> list[int]:
    """How many of `width` cells each share gets: in proportion, at least one for what is there, `width` in all."""
    sizes = [each.nbytes for each in held]
    total, seen = sum(sizes), sum(1 for size in sizes if size)
    if not total or width < seen:
        return [0] * len(sizes)
    given = [max(1, size * width // total) if size else 0 for size in sizes]
    while (over := sum(given) - width) != 0:
        largest = max(range(len(given)), key=lambda index: (given[index], sizes[index]))
        given[largest] -= min(over, given[largest] - 1) if over > 0 else over
    return given


def _last(rows: Iterable[ResultRow]) -> Iterable[ResultRow]:
    return {row.device: row for row in rows}.values()


def _title(row: ResultRow) -> str:
    kind = "simulated device" if row.backend == "simulated" else "device"
    return f"Where every byte of {kind} {row.device} was, with {row.model} on it, cycle {row.cycle}"


def _lines(row: ResultRow) -> Iterator[str]:
    held = shares(row.ledger or {})
    total = sum(each.nbytes for each in held)
    yield _title(row)
    for each in held:
        yield f"  {row.device} {each.owner.name}: {mib(each.nbytes)} ({exact(each.nbytes)})"
    yield f"  {row.device} total: {mib(total)} ({exact(total)})"
    for difference in row.differences:
        yield f"  {row.device} why: {difference.text}"


def _draw(row: ResultRow, console: Console) -> None:
    held = shares(row.ledger or {})
    total = sum(each.nbytes for each in held)
    in_use = [each for each in held if each.owner.owner not in (FREE, DRIVER_RESERVED)]
    used = sum(each.nbytes for each in in_use)
    width = min(WIDEST_BAR, console.width - INDENT)
    console.print()
    console.print(Text(_title(row), style="bold"))
    console.print(_indented(_bar(held, width, console)))
    if sum(1 for each in in_use if each.nbytes > 0) > 1 and used < total * ENLARGED_BELOW:
        console.print(Text(f"{' ' * INDENT}what is in use of it, enlarged:"))
        console.print(_indented(_bar(in_use, width, console)))
    console.print(_indented(_legend(held, total, console)))
    if row.differences:
        console.print(Text("Why the figures differ", style="bold"))
        _bullets((each.text for each in row.differences), console)


def _bar(held: Sequence[Share], width: int, console: Console) -> Text:
    bar = Text(no_wrap=True, overflow="crop")
    for each, count in zip(held, cells(held, width), strict=True):
        glyph, colour = _look(each, console)
        bar.append(glyph * count, style=colour)
    return bar


def _look(share: Share, console: Console) -> tuple[str, str]:
    letter, colour = LOOKS.get(share.owner.owner, UNKNOWN_LOOK)
    if console.color_system is None or console.options.ascii_only:
        return letter, colour
    return (LIGHT_SHADE if share.owner.owner == FREE else FULL_BLOCK), colour


def _legend(held: Sequence[Share], total: int, console: Console) -> Table:
    legend = Table.grid(padding=(0, 2))
    legend.add_column(no_wrap=True)
    for _ in range(3):
        legend.add_column(justify="right", no_wrap=True)
    for each in held:
        glyph, colour = _look(each, console)
        name = Text.assemble((glyph * 2, colour), " ", each.owner.name)
        legend.add_row(name, Text(mib(each.nbytes)), Text(exact(each.nbytes)), Text(percent(each.nbytes, total)))
    legend.add_row(Text("   total"), Text(mib(total)), Text(exact(total)), Text(""))
    return legend


def _tell_residue(row: ResultRow, console: Console) -> None:
    residue = row.residue
    if residue is None:
        return
    title = f"{row.model}, cycle {row.cycle}, after {_AFTER.get(residue.after, residue.after)}"
    if not console.is_terminal:
        _say(console, *(line for left in leftovers(residue) for line in _left_lines(title, left)))
        return
    console.print(Text(f"What {title} left behind", style="bold"))
    for left in leftovers(residue):
        console.print(Text(f"{' ' * INDENT}{left.where}: {left.text}", style="" if left.nbytes else "green"))
        _bullets((each.text for each in left.causes), console, INDENT * 2)


def _left_lines(title: str, left: Leftover) -> Iterator[str]:
    yield f"{title}, {left.where}: {left.text}"
    for cause in left.causes:
        yield f"  {left.where} {cause.cause}: {cause.text}"


def _bullets(texts: Iterable[str], console: Console, indent: int = INDENT) -> None:
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for text in texts:
        grid.add_row(Text("-"), Text(text))
    if grid.row_count:
        console.print(_indented(grid, indent))


def _indented(shown: RenderableType, indent: int = INDENT) -> Padding:
    return Padding(shown, (0, 0, 0, indent), expand=False)


def _say(console: Console, *lines: str) -> None:
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)

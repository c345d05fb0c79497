"""A report for a terminal, or as plain text for a pipe."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vramscope.report.fitting import fits
from vramscope.report.sheet import Report, Sheet
from vramscope.units import printable

NARROWEST = 160  # columns below which the tables would wrap; a console that is no terminal can be as wide as it likes


def print_report(report: Report, console: Console) -> None:
    """Show all but the charts."""
    if not console.is_terminal:
        console.width = max(console.width, NARROWEST)
    console.print(Text(printable(report.title), style="bold"), soft_wrap=True)
    for section in report.sections:
        console.print()
        console.print(Text(printable(section.title), style="bold"))
        for sheet in section.sheets:
            _show(sheet, console)
        for note in section.notes:
            console.print(Text(f"  {printable(note)}"), soft_wrap=True)


def _show(sheet: Sheet, console: Console) -> None:
    """Print a table, or a line a row where the terminal is too narrow for it."""
    table = Table(show_header=any(sheet.headings))
    for index, heading in enumerate(sheet.headings):
        is_text = index in sheet.texts
        table.add_column(heading, justify="left" if is_text else "right", overflow="fold")
    for number, row in enumerate(sheet.rows):
        table.add_row(*(Text(printable(cell)) for cell in row), style="bold" if number in sheet.marked else "")
    if not console.is_terminal or fits(table, console):
        console.print(table)
        return
    for first, *others in sheet.rows:
        named = zip(sheet.headings[1:], others, strict=True)
        cells = (f"{heading} {printable(cell)}".strip() for heading, cell in named if cell)
        console.print(Text(f"  {printable(first)}: {', '.join(cells)}"), soft_wrap=True)

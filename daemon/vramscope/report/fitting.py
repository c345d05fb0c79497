"""Whether a table has room where it is to be shown."""

from rich.console import Console
from rich.table import Table

WIDEST = 10_000


def fits(table: Table, console: Console) -> bool:
    """Whether the console has room for every column of the table as wide as it wants to be."""
    return console.measure(table, options=console.options.update(width=WIDEST)).maximum <= console.width

"""Shows what the checks found: a table on a terminal, plain lines anywhere else."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vramscope.doctor._frame import Result, State

STYLES = {State.OK: "green", State.NOTE: "cyan", State.WARNING: "yellow", State.PROBLEM: "bold red"}
WORST_FIRST = (State.PROBLEM, State.WARNING, State.NOTE, State.OK)


def print_results(results: Sequence[Result], console: Console) -> None:
    """Everything, in the order of the checks, and a line that counts the states."""
    if console.is_terminal:
        console.print(_table(results))
    else:
        for line in (line for result in results for line in _lines(result)):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(verdict(results), markup=False, highlight=False, soft_wrap=True)


def verdict(results: Sequence[Result]) -> str:
    """How many of each, and whether a run would start."""
    states = [result.finding.state for result in results]
    counts = [f"{states.count(state)} {state}" for state in WORST_FIRST if state in states]
    end = "a run would not start" if State.PROBLEM in states else "nothing would stop a run"
    return f"{', '.join(counts)}: {end}"


def _table(results: Sequence[Result]) -> Table:
    table = Table(show_lines=False, pad_edge=False, box=None)
    table.add_column("check", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("found, and what to do", overflow="fold")
    for result in results:
        finding = result.finding
        text = Text(finding.found)
        if finding.advice:
            text.append(f"\n→ {finding.advice}", style="bold")
        table.add_row(Text(result.title), Text(finding.state, style=STYLES[finding.state]), text)
    return table


def _lines(result: Result) -> Iterator[str]:
    finding = result.finding
    yield f"{finding.state:<8}{result.title}: {finding.found}"
    if finding.advice:
        yield f"        {finding.advice}"

"""A report as Markdown (GitHub's tables). Charts are for pages only."""

import re
from collections.abc import Iterator

from vramscope.report.sheet import Report, Section, Sheet
from vramscope.units import printable

_SPECIAL = re.compile(r"([\\`*_\[\]<>|~#])")


def markdown(report: Report) -> str:
    """The whole document."""
    parts = [f"# {_plain(report.title)}", *(part for section in report.sections for part in _section(section))]
    return "\n\n".join(parts) + "\n"


def _section(section: Section) -> Iterator[str]:
    yield f"## {_plain(section.title)}"
    if section.lead:
        yield _plain(section.lead)
    for sheet in section.sheets:
        yield "\n".join(_table(sheet))
    if section.notes:
        yield "\n".join(f"- {_plain(note)}" for note in section.notes)


def _table(sheet: Sheet) -> Iterator[str]:
    yield _row(sheet.headings)
    yield _row("---" if index in sheet.texts else "---:" for index in range(len(sheet.headings)))
    for number, row in enumerate(sheet.rows):
        cells = [_plain(cell) for cell in row]
        if number in sheet.marked:
            cells[0] = f"**{cells[0]}**"
        yield f"| {' | '.join(cells)} |"


def _row(cells: Iterator[str] | tuple[str, ...]) -> str:
    return f"| {' | '.join(cells)} |"


def _plain(text: str) -> str:
    """Text that means nothing else in Markdown, and stays on its line."""
    return _SPECIAL.sub(r"\\\1", printable(text))

"""A report as one HTML page: no script, no network, nothing outside of the file; light or dark as the reader has it.

Its policy forbids everything but its own style, by the style's hash.
"""

import base64
import hashlib
from collections.abc import Iterator
from html import escape

from vramscope.report.page_style import STYLE
from vramscope.report.sheet import Report, Section, Sheet


def page(report: Report) -> str:
    """The whole document."""
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    body = "\n".join(part for section in report.sections for part in _section(section))
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{escape(report.title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{escape(report.title)}</h1>
{body}
</body>
</html>
"""


def _section(section: Section) -> Iterator[str]:
    yield f"<section>\n<h2>{escape(section.title)}</h2>"
    if section.lead:
        yield f'<p class="soft">{escape(section.lead)}</p>'
    for chart in section.charts:
        yield f'<div class="wide">{chart}</div>'
    if section.charts and section.sheets:
        yield "<details><summary>the figures</summary>"
    for sheet in section.sheets:
        yield from _table(sheet)
    if section.charts and section.sheets:
        yield "</details>"
    if section.notes:
        yield "<ul>" + "".join(f"<li>{escape(note)}</li>" for note in section.notes) + "</ul>"
    yield "</section>"


def _table(sheet: Sheet) -> Iterator[str]:
    yield '<div class="wide"><table>'
    if any(sheet.headings):
        head = "".join(_cell(sheet, index, text, "th") for index, text in enumerate(sheet.headings))
        yield f"<thead><tr>{head}</tr></thead>"
    yield "<tbody>"
    for number, row in enumerate(sheet.rows):
        marked = ' class="changed"' if number in sheet.marked else ""
        yield f"<tr{marked}>{''.join(_cell(sheet, index, text, 'td') for index, text in enumerate(row))}</tr>"
    yield "</tbody></table></div>"


def _cell(sheet: Sheet, index: int, text: str, tag: str) -> str:
    """A size is written with every byte on a line of its own, so that columns stay narrow."""
    kind = "" if index in sheet.texts else ' class="figure"'
    first, mark, rest = text.partition(" (")
    if kind and mark and tag == "td":
        return f"<{tag}{kind}>{escape(first)}<small>{escape(rest.rstrip(')'))}</small></{tag}>"
    return f"<{tag}{kind}>{escape(text)}</{tag}>"

"""What a report consists of, apart from how it is written: sections of sentences, tables and charts."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A table. The columns named in `texts` are text, the others are figures; `marked` rows are those that changed."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: tuple[int, ...] = (0,)
    marked: frozenset[int] = frozenset()


@dataclass(frozen=True, kw_only=True)
class Section:
    """A part of a report. `charts` are SVG, which only a page shows; `notes` are sentences below."""

    title: str
    lead: str = ""
    charts: tuple[str, ...] = ()
    sheets: tuple[Sheet, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Report:
    """A whole report."""

    title: str
    sections: tuple[Section, ...]

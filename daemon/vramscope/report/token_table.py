"""Shows how a text becomes tokens: every count with its name, then the tokens themselves."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table
from rich.text import Text

from vramscope.report.sizes import UNKNOWN, exact, percent
from vramscope.units import printable

TOKENS_SHOWN = 40
SPELLING = "token: as the vocabulary spells it; where that is by bytes, each byte is a letter, and a space is Ġ"
_CELL = 24


@dataclass(frozen=True, kw_only=True)
class TokenReport:
    """One text or chat, counted; `text` is what was tokenized, for a chat as its template writes it.

    `ids`, `tokens` and `count` are those of the text alone. None is what neither config nor tokenizer says.
    """

    source: str
    text: str
    is_chat: bool
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    count: int
    count_with_special: int
    spelled_special: int
    characters: int
    words: int
    context_window: int | None
    vocabulary: int
    added: int
    embedding_rows: int | None

    @property
    def share(self) -> float | None:
        """The part of the context window that the text fills, special tokens included."""
        return self.count_with_special / self.context_window if self.context_window else None


def print_tokens(report: TokenReport, console: Console) -> None:
    """Show the figures, then the first tokens."""
    figures = Table(title=Text(f"Tokens of {printable(report.source)}"), title_justify="left", show_header=False)
    figures.add_column("what", no_wrap=True)
    figures.add_column("figure", justify="right", no_wrap=True)
    figures.add_column("note")
    for cells in _figures(report):
        figures.add_row(*(Text(cell) for cell in cells))
    console.print(figures)
    if not report.ids:
        return
    console.print(_listed(report))
    for line in _notes(report):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _figures(report: TokenReport) -> Iterator[tuple[str, str, str]]:
    if report.is_chat:
        yield "tokens of the chat", exact(report.count), "special tokens by the template, none added"
    else:
        added = report.count_with_special - report.count
        yield "tokens of the text", exact(report.count), "without added special tokens"
        yield "tokens for the model", exact(report.count_with_special), f"with {_many(added, 'special token')} added"
    if report.spelled_special:
        yield (
            "of them special",
            exact(report.spelled_special),
            "by the template" if report.is_chat else "spelled out in the text",
        )
    yield "characters", exact(report.characters), "Unicode code points; a sign may be several"
    yield "words", exact(report.words), "parts between white space"
    filled = percent(report.count_with_special, report.context_window)
    yield "context window", exact(report.context_window), f"tokens, {filled} filled" if report.context_window else ""
    yield "vocabulary", exact(report.vocabulary), "tokens of the tokenizer itself"
    yield "added tokens", exact(report.added), "beside the vocabulary"
    yield "embedding rows", exact(report.embedding_rows), _rows(report)


def _rows(report: TokenReport) -> str:
    """How the model's rows compare to the tokenizer's ids."""
    if report.embedding_rows is None:
        return "no config.json says it"
    spare = report.embedding_rows - report.vocabulary - report.added
    if spare < 0:
        return f"{_many(-spare, 'token')} without one: another model's tokenizer?"
    return f"of the model, {exact(spare)} without a token" if spare else "of the model, one for each token"


def _notes(report: TokenReport) -> Iterator[str]:
    if any(token != origin for token, origin in zip(report.tokens, _origins(report), strict=False)):
        yield SPELLING
    if (rest := report.count - TOKENS_SHOWN) > 0:
        yield f"and {_many(rest, 'more token')}: --format json has them all"


def _listed(report: TokenReport) -> Table:
    table = Table()
    for heading in ("#", "id"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("token", no_wrap=True)
    table.add_column("from the text", no_wrap=True)
    for number, origin in enumerate(_origins(report)):
        token = Text(_cut(report.tokens[number]))
        table.add_row(str(number), str(report.ids[number]), token, Text(origin))
    return table


def _origins(report: TokenReport) -> Iterator[str]:
    """What each of the tokens shown stands for in the text; one that several tokens share says which part of it."""
    shared = Counter(report.spans)
    seen: Counter[tuple[int, int]] = Counter()
    for number in range(min(report.count, TOKENS_SHOWN)):
        if not report.spans:
            yield UNKNOWN
            continue
        span = report.spans[number]
        seen[span] += 1
        part = f"  {seen[span]} of {shared[span]}" if shared[span] > 1 and span[0] < span[1] else ""
        yield f"{_cut(report.text[slice(*span)])}{part}"


def _cut(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= _CELL else f"{shown[: _CELL - 1]}…"


def _many(count: int, what: str) -> str:
    return f"{exact(count)} {what}{'' if count == 1 else 's'}"

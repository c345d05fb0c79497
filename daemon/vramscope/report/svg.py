"""The little SVG that the charts need. Colours and fonts are classes of the page, so that it can be light or dark."""

import math
from collections.abc import Iterable, Sequence
from html import escape

WIDTH = 960
TEXT_WIDTH = 6.6  # of a character of 12 pixels, on the average


def picture(height: float, title: str, parts: Iterable[str]) -> str:
    """A whole picture. `title` is read aloud for it."""
    body = "\n".join(parts)
    label = escape(title, quote=True)
    return f'<svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" aria-label="{label}">\n{body}\n</svg>'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Words at a place; `anchor` says which end of them is there."""
    where = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{where}{_class(kind)}>{escape(words)}</text>'


def box(x: float, y: float, size: tuple[float, float], kind: str, title: str = "") -> str:
    """A filled rectangle of this width and height."""
    told = f"<title>{escape(title)}</title>" if title else ""
    width, height = max(size[0], 0), max(size[1], 0)
    where = f'x="{x:.2f}" y="{y:.2f}" width="{width:.2f}" height="{height:.2f}"'
    return f"<rect {where}{_class(kind)}>{told}</rect>"


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}"{_class(kind)}/>'


def area(points: Sequence[tuple[float, float]], kind: str, title: str = "") -> str:
    """A filled shape."""
    told = f"<title>{escape(title)}</title>" if title else ""
    return f'<polygon points="{_joined(points)}"{_class(kind)}>{told}</polygon>'


def curve(points: Sequence[tuple[float, float]], kind: str) -> str:
    """A line through points."""
    return f'<polyline points="{_joined(points)}"{_class(f"curve {kind}")}/>'


def dot(x: float, y: float, kind: str, title: str) -> str:
    """A point that tells `title` where a pointer rests on it."""
    return f'<circle cx="{x:.2f}" cy="{y:.2f}" r="3"{_class(kind)}><title>{escape(title)}</title></circle>'


def legend(y: float, entries: Iterable[tuple[str, str]], x: float = 0.0) -> tuple[list[str], float]:
    """Swatches with names, in as many rows as they need, and the height of them."""
    parts, left, top = [], x, y
    for kind, name in entries:
        width = 18 + TEXT_WIDTH * len(name) + 16
        if left > x and left + width > WIDTH:
            left, top = x, top + 20
        parts += [box(left, top, (12, 12), kind), text(left + 18, top + 10.5, name)]
        left += width
    return parts, top - y + 20


def ticks(largest: float, *, binary: bool = False, count: int = 5) -> list[float]:
    """Round values from 0 to `largest` or a little less; powers of two times 1, 2, 5 MiB-wise where `binary`."""
    if largest <= 0:
        return [0.0]
    base = 2.0 if binary else 10.0
    factors = (1.0,) if binary else (1.0, 2.0, 5.0)
    exponent = math.floor(math.log(largest / count, base))
    steps = [factor * base ** (exponent + more) for more in (0, 1, 2) for factor in factors]
    step = next(step for step in steps if largest / step <= count)
    return [step * number for number in range(int(largest / step) + 1)]


def shortened(words: str, width: float) -> str:
    """As much of a text as fits."""
    room = int(width / TEXT_WIDTH)
    return words if len(words) <= room else words[: max(1, room - 1)] + "…"


def _class(kind: str) -> str:
    return f' class="{escape(kind, quote=True)}"' if kind else ""


def _joined(points: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)

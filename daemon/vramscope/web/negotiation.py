"""Reads the headers Accept and Accept-Encoding (RFC 9110, section 12.5): what the client takes, and likes best."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum


class Format(Enum):
    """A format of the metrics page; its value is the content type."""

    TEXT = "text/plain; version=0.0.4; charset=utf-8"
    OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass(frozen=True)
class _Wish:
    """One element of such a header: what it names, with its parameters, and how much it is liked (0 is refused)."""

    name: str
    parameters: dict[str, str]
    quality: float


def metrics_format(accept: str) -> Format:
    """Choose OpenMetrics where the client names it in version 1.0.0 and likes nothing better, else text.

    Nobody is refused: a client that takes neither gets text, as a page in the wrong format still tells a person more
    than an error does.
    """
    openmetrics = text = 0.0
    for wish in _wishes(accept):
        version = wish.parameters.get("version")
        if wish.name == "application/openmetrics-text" and version in (None, "1.0.0"):
            openmetrics = max(openmetrics, wish.quality)
        elif wish.name == "text/plain" and version in (None, "0.0.4"):
            text = max(text, wish.quality)
    return Format.OPENMETRICS if openmetrics > 0 and openmetrics >= text else Format.TEXT


def takes_gzip(accept_encoding: str) -> bool:
    """Whether the client takes gzip: named with a quality above 0, or covered by `*` and not named."""
    qualities = {wish.name: wish.quality for wish in _wishes(accept_encoding)}
    named = qualities.get("gzip", qualities.get("x-gzip"))
    return (qualities.get("*", 0.0) if named is None else named) > 0


def _wishes(header: str) -> Iterator[_Wish]:
    for element in header.split(","):
        name, *rest = (part.strip().lower() for part in element.split(";"))
        if name:
            pairs = (part.partition("=") for part in rest)
            parameters = {key.strip(): value.strip().strip('"') for key, _, value in pairs}
            yield _Wish(name, parameters, _quality(parameters.get("q", "1")))


def _quality(text: str) -> float:
    """Return the weight as a number from 0 to 1; one that cannot be read is a refusal."""
    try:
        quality = float(text)
    except ValueError:
        return 0.0
    return quality if 0 <= quality <= 1 else 0.0

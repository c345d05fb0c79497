"""The metrics page: the registry's families, written out in the format and encoding that the client wants."""

import gzip
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from prometheus_client.core import Metric
from prometheus_client.exposition import generate_latest as generate_text
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from starlette.requests import Request
from starlette.responses import Response

from vramscope.web.negotiation import Format, metrics_format, takes_gzip

# One Ethernet frame carries this much anyway.
SMALLEST_GZIP_BYTES = 1400
# Level 1 takes a third of level 9's time here and leaves some 10% more bytes.
GZIP_LEVEL = 1


@dataclass(frozen=True)
class _Families:
    """What prometheus_client wants as a registry."""

    collect: Callable[[], Iterable[Metric]]


class _Writer:
    """Writes pages in one format, and again only those families that are not as they were on the last page.

    Writing out is most of a scrape's time, and of some 70 families hardly one changes from one scrape to the next. What
    is compared are the samples themselves, which cannot be changed, so a page is never older than its families.
    """

    def __init__(self, generate: Callable[[Any], bytes]) -> None:
        self._generate = generate
        self._end = generate(_Families(list))  # "# EOF" in OpenMetrics, nothing in the text format
        self._last: dict[str, tuple[tuple[object, ...], bytes]] = {}

    def page(self, families: Iterable[Metric]) -> bytes:
        last, self._last = self._last, {}
        texts = []
        for family in families:
            content = (family.documentation, family.type, family.unit, tuple(family.samples))
            before = last.get(family.name)
            text = before[1] if before is not None and before[0] == content else self._text(family)
            self._last[family.name] = content, text
            texts.append(text)
        return b"".join((*texts, self._end))

    def _text(self, family: Metric) -> bytes:
        return self._generate(_Families(lambda: [family])).removesuffix(self._end)


class MetricsPage:
    """Answers scrapes of what `collect` yields. Runs in the loop's thread, as collectors read nothing but memory."""

    def __init__(self, collect: Callable[[], Iterable[Metric]]) -> None:
        self._collect = collect
        self._writers = {Format.TEXT: _Writer(generate_text), Format.OPENMETRICS: _Writer(generate_openmetrics)}

    def response(self, request: Request) -> Response:
        form = metrics_format(_header(request, "accept"))
        body = self._writers[form].page(self._collect())
        headers = {"content-type": form.value, "vary": "Accept, Accept-Encoding"}
        if len(body) >= SMALLEST_GZIP_BYTES and takes_gzip(_header(request, "accept-encoding")):
            body = gzip.compress(body, GZIP_LEVEL)
            headers["content-encoding"] = "gzip"
        return Response(body, headers=headers)


def _header(request: Request, name: str) -> str:
    """A list that came in several lines is one list (RFC 9110, section 5.3)."""
    return ",".join(request.headers.getlist(name))

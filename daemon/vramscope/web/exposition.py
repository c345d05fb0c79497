"""The metrics page: the registry's families, written out in the format and encoding that the client wants."""

import gzip
from collections.abc import Callable, Iterable
from dataclasses import dataclass

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


def metrics_response(collect: Callable[[], Iterable[Metric]], request: Request) -> Response:
    """Answer a scrape. Runs in the loop's thread, as collectors read nothing but memory."""
    form = metrics_format(_header(request, "accept"))
    generate = generate_openmetrics if form is Format.OPENMETRICS else generate_text
    body = generate(_Families(collect))
    headers = {"content-type": form.value, "vary": "Accept, Accept-Encoding"}
    if len(body) >= SMALLEST_GZIP_BYTES and takes_gzip(_header(request, "accept-encoding")):
        body = gzip.compress(body, GZIP_LEVEL)
        headers["content-encoding"] = "gzip"
    return Response(body, headers=headers)


def _header(request: Request, name: str) -> str:
    """A list that came in several lines is one list (RFC 9110, section 5.3)."""
    return ",".join(request.headers.getlist(name))

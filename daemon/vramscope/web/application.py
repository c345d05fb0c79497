"""The HTTP application: its routes, and the headers that every answer carries."""

import json
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from re import DOTALL, findall
from typing import Any

from prometheus_client.core import Metric
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vramscope.supervisor.state import RunState
from vramscope.web.basic_auth import BasicAuth
from vramscope.web.exposition import MetricsPage
from vramscope.web.guard import Guard
from vramscope.web.lifecycle import Lifecycle, lifecycle_routes
from vramscope.web.status import status


def always_healthy() -> str:
    """Return no complaint: that the loop answers at all is the proof."""
    return ""


def no_targets() -> Mapping[str, float]:
    """No step is meant to take a certain time."""
    return {}


@dataclass(frozen=True, kw_only=True)
class WebSources:
    """What the pages read; all of it is memory.

    `collect` is the registry's, `clock` is seconds since the epoch, `results` are the rows of the results table as
    JSON values, `targets` maps a step of the plan to the seconds that it is meant to take. `health` returns a
    complaint, empty while all is well.
    """

    collect: Callable[[], Iterable[Metric]]
    state: Callable[[], RunState]
    results: Callable[[], Sequence[Mapping[str, Any]]]
    clock: Callable[[], float]
    targets: Callable[[], Mapping[str, float]] = no_targets
    health: Callable[[], str] = always_healthy


def not_ready(state: RunState) -> str:
    """Why the daemon is not ready to be looked at, as a clause; empty when it is."""
    if not state.plan.name:
        return "no plan has started"
    if not state.worker.up:
        return "the worker is not ready"
    return ""


def make_application(sources: WebSources, lifecycle: Lifecycle | None = None, guard: Guard | None = None) -> ASGIApp:
    """Build the application: /, /metrics, /status, /healthz, /readyz and the lifecycle; anything else is 404."""
    page = Path(__file__).with_name("page.html").read_text(encoding="utf-8")
    metrics_page = MetricsPage(sources.collect)

    # Every endpoint is async: a plain function would be run in a thread and could meet a half-written state.
    async def live(_request: Request) -> Response:
        return HTMLResponse(page)

    async def metrics(request: Request) -> Response:
        return metrics_page.response(request)

    async def run_status(_request: Request) -> Response:
        return _json(status(sources.state(), sources.clock(), sources.results(), sources.targets()))

    async def healthz(_request: Request) -> Response:
        return _verdict(sources.health())

    async def readyz(_request: Request) -> Response:
        return _verdict(sources.health() or not_ready(sources.state()))

    routes = [
        Route(path, endpoint, methods=["GET"])
        for path, endpoint in (
            ("/", live),
            ("/metrics", metrics),
            ("/status", run_status),
            ("/healthz", healthz),
            ("/readyz", readyz),
        )
    ]
    application = Starlette(routes=[*routes, *lifecycle_routes(lifecycle)])
    application.router.redirect_slashes = False
    strict = _strict_headers(page)
    routed = _in_origin_form(application)
    if guard is None:
        return _with_headers(routed, lambda: strict)
    guarded = BasicAuth(routed, guard.users, guard.refusals)
    return _with_headers(guarded, lambda: {**strict, **{name.lower(): text for name, text in guard.headers().items()}})


def _json(content: Mapping[str, Any]) -> Response:
    """In ASCII: a path that is not UTF-8 has half of a surrogate pair in Python, which no UTF-8 can tell."""
    return Response(json.dumps(content, allow_nan=False, separators=(",", ":")), media_type="application/json")


def _verdict(complaint: str) -> Response:
    return PlainTextResponse(complaint or "ok", status_code=503 if complaint else 200)


def _strict_headers(page: str) -> dict[str, str]:
    """Allow the page its own script and style, by their hash, and its own server; nothing else from anywhere."""
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hashes(page, 'script')}",
            f"style-src {_hashes(page, 'style')}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )
    return {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
    }


def _hashes(page: str, element: str) -> str:
    bodies = findall(f"<{element}>(.*?)</{element}>", page, DOTALL)
    return " ".join(f"'sha256-{b64encode(sha256(body.encode()).digest()).decode()}'" for body in bodies)


def _in_origin_form(application: ASGIApp) -> ASGIApp:
    """Wrap the application so that it gets a path where a client sent a whole address (RFC 9112, section 3.2.2)."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        scheme, colon, rest = scope.get("path", "").partition("://")
        if colon and scheme.lower() in {"http", "https"}:
            scope = {**scope, "path": "/" + rest.partition("/")[2]}
        await application(scope, receive, send)

    return wrapped


def _with_headers(application: ASGIApp, headers: Callable[[], dict[str, str]]) -> ASGIApp:
    """Wrap the application so that every answer, errors too, carries these headers."""

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(headers())
            await send(message)

        await application(scope, receive, send_with_headers if scope["type"] == "http" else send)

    return wrapped

"""`POST /-/reload` and `POST /-/quit`, as Prometheus has them: there only for who starts the daemon with the flag."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from vramscope.errors import VramscopeError

METHODS = ["POST", "PUT"]
RELOAD, QUIT = "/-/reload", "/-/quit"
DISABLED = "the lifecycle endpoints are off; --web.enable-lifecycle turns them on"
FOREIGN = "a page of another site asks for this"


@dataclass(frozen=True, kw_only=True)
class Lifecycle:
    """What the two do. `reload` raises VramscopeError with what is wrong with the plan file."""

    reload: Callable[[], Awaitable[None]]
    quit: Callable[[], None]


def lifecycle_routes(lifecycle: Lifecycle | None) -> list[Route]:
    """The two routes; without a lifecycle they say that they are off."""

    async def reload(request: Request) -> Response:
        if lifecycle is None or _is_foreign(request):
            return _refused(lifecycle)
        try:
            await lifecycle.reload()
        except VramscopeError as error:
            return PlainTextResponse(f"the plan that runs stays:\n{error}\n", status_code=500)
        return PlainTextResponse("the plan file was read\n")

    async def leave(request: Request) -> Response:
        if lifecycle is None or _is_foreign(request):
            return _refused(lifecycle)
        lifecycle.quit()
        return PlainTextResponse("ending\n")

    return [Route(RELOAD, reload, methods=METHODS), Route(QUIT, leave, methods=METHODS)]


def _is_foreign(request: Request) -> bool:
    """Whether a browser sends it for a page of another site, which needs nobody's consent."""
    return request.headers.get("sec-fetch-site", "none") not in ("none", "same-origin")


def _refused(lifecycle: Lifecycle | None) -> Response:
    return PlainTextResponse(DISABLED if lifecycle is None else FOREIGN, status_code=403)

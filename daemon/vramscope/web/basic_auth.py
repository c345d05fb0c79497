"""Basic authentication (RFC 7617) against bcrypt hashes.

bcrypt is slow on purpose, some 60 ms at a cost of 10. So it runs in a thread, one password at a time, and what was
right once is remembered as a keyed digest: a scrape that knows its password does not wait, whatever others try.
"""

import asyncio
import binascii
import hashlib
import secrets
from base64 import b64decode
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import bcrypt
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from vramscope.web.refusals import Refusals

# bcrypt reads no more of a password.
PASSWORD_BYTES = 72
REMEMBERED = 100
WAITING = 16
_CHALLENGE = {"www-authenticate": 'Basic realm="vramscope", charset="UTF-8"'}


class BasicAuth:
    """Lets a request through to `application` if it names one of `users` (name to bcrypt hash) with its password.

    Without users everybody passes. `users` is asked for each request, so it may change.
    """

    def __init__(self, application: ASGIApp, users: Callable[[], Mapping[str, str]], refusals: Refusals) -> None:
        self._application = application
        self._users = users
        self._refusals = refusals
        self._key = secrets.token_bytes(32)
        self._right: dict[bytes, None] = {}
        self._checks: dict[bytes, asyncio.Task[bool]] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bcrypt")
        # Checked where there is no such user, so that the time of an answer does not tell which there are.
        self._nobody = bcrypt.hashpw(secrets.token_hex(16).encode(), bcrypt.gensalt(10)).decode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        users = self._users()
        if scope["type"] == "lifespan" or not users:
            await self._application(scope, receive, send)
            return
        if scope["type"] != "http":
            return  # no other protocol is served
        refusal = await self._refusal(scope, users)
        if refusal is None:
            await self._application(scope, receive, send)
            return
        await refusal(scope, receive, send)

    def close(self) -> None:
        """Forget about passwords that still wait for their check."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _refusal(self, scope: Scope, users: Mapping[str, str]) -> PlainTextResponse | None:
        credentials = _credentials(scope)
        reason = "no user and password were given"
        if credentials is not None:
            user, password = credentials
            hashed = users.get(user)
            right = await self._is_right(user, password, hashed)
            if right is None:
                return PlainTextResponse("too many passwords wait for their check", 503, {"retry-after": "5"})
            if right and hashed is not None:
                return None
            # An unknown name is not told: people type their password there, too.
            reason = f"wrong password for {user}" if hashed is not None else "unknown user"
        client = scope.get("client") or ("",)
        self._refusals.tell("authentication_refused", reason, str(client[0]))
        return PlainTextResponse("Unauthorized", 401, _CHALLENGE)

    async def _is_right(self, user: str, password: bytes, hashed: str | None) -> bool | None:
        """Whether the password fits; None where too many wait for an answer."""
        question = b"\0".join((user.encode(), (hashed or "").encode(), password))
        digest = hashlib.blake2b(question, key=self._key).digest()
        if digest in self._right:
            self._right[digest] = self._right.pop(digest)  # the latest is the last to be forgotten
            return True
        if (check := self._checks.get(digest)) is None:
            if len(self._checks) >= WAITING:
                return None
            check = self._checks[digest] = asyncio.create_task(self._check(password, hashed or self._nobody))
            check.add_done_callback(lambda _: self._checks.pop(digest))
        right = await asyncio.shield(check)  # a client that goes away must not take the answer from others
        if right and hashed is not None:
            self._right[digest] = None
            while len(self._right) > REMEMBERED:
                del self._right[next(iter(self._right))]
        return right

    async def _check(self, password: bytes, hashed: str) -> bool:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._thread, bcrypt.checkpw, password[:PASSWORD_BYTES], hashed.encode())
        except ValueError:  # a password that bcrypt does not take, such as one with a NUL in it
            return False


def _credentials(scope: Scope) -> tuple[str, bytes] | None:
    """User and password of the header Authorization; None where it has none that can be read."""
    headers = [value for name, value in scope["headers"] if name.lower() == b"authorization"]
    if len(headers) != 1:
        return None
    scheme, _, encoded = headers[0].strip().partition(b" ")
    if scheme.lower() != b"basic":
        return None
    try:
        user, colon, password = b64decode(encoded.strip(), validate=True).partition(b":")
        return (user.decode(), password) if colon else None
    except (binascii.Error, UnicodeDecodeError):
        return None

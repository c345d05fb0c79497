"""The HTTP server: addresses, sockets, and hypercorn inside our own loop.

hypercorn was chosen by measurement: with 200 half-open requests held it answered others in 13 ms and dropped the idle
ones after 5 s. What it lacks, a bound on connections, stands here.
"""

import asyncio
import contextlib
import errno
import logging
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakKeyDictionary

from hypercorn.asyncio import serve as hypercorn_serve
from hypercorn.config import Config, Sockets
from starlette.types import ASGIApp

from vramscope.errors import ListenError, UsageError

PORT_LIMIT = 65535

_HINTS = {
    errno.EADDRINUSE: "another program listens there: stop it, or choose another address with --listen",
    errno.EACCES: "ports below 1024 need a privilege: choose a higher one with --listen",
    errno.EADDRNOTAVAIL: "this machine does not have that address: use one that `ip address` shows",
}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What clients may take.

    `connections` is half of the usual limit of 1024 file descriptors; the other half is for the worker, its pipes and
    the probes. A connection without a complete request is dropped after `idle_seconds`, and so is one between two
    requests; one whose request body stops arriving is dropped after `read_seconds`. One that is older than
    `stale_seconds` is dropped when its place is needed: its client may have asked for much and read none of it.
    `streams` is how many requests an HTTP/2 connection may have at once, whose answers wait in memory.
    """

    connections: int = 512
    backlog: int = 128
    idle_seconds: float = 5.0
    read_seconds: int = 10
    stale_seconds: float = 30.0
    streams: int = 10
    grace_seconds: float = 0.5


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True)
class Address:
    """Where to listen. An empty host is every address of the machine; port 0 is any free port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Read `host:port`, `[IPv6]:port` or `:port`. Raises UsageError."""
    host, colon, port = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or (":" in host and not bracketed):
        raise UsageError(
            f"--listen: {text!r} is not host:port", hint="for example 127.0.0.1:10089, [::1]:10089, :10089"
        )
    if not (port.isascii() and port.isdigit() and int(port) <= PORT_LIMIT):
        raise UsageError(f"--listen: {port!r} is not a port", hint=f"a port is a number from 0 to {PORT_LIMIT}")
    return Address(host[1:-1] if bracketed else host, int(port))


class Connections:
    """The open connections of all listeners, each with the time since when it is open."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._since: WeakKeyDictionary[socket.socket, float] = WeakKeyDictionary()

    def admit(self, connection: socket.socket) -> bool:
        """Take one more, if there is room or can be made."""
        if sum(each.fileno() != -1 for each in self._since) >= self._limits.connections and not self._drop_stale():
            return False
        self._since[connection] = time.monotonic()
        return True

    def _drop_stale(self) -> bool:
        before = time.monotonic() - self._limits.stale_seconds
        stale = [each for each, since in self._since.items() if since < before and each.fileno() != -1]
        for each in stale:
            del self._since[each]
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # whoever owns it sees its end, and closes it
        return bool(stale)


class Listener(socket.socket):
    """A listening socket that turns a connection away while too many are open."""

    def __init__(self, family: int, connections: Connections) -> None:
        super().__init__(family, socket.SOCK_STREAM)
        self._connections = connections

    def accept(self) -> tuple[socket.socket, Any]:
        connection, peer = super().accept()
        if not self._connections.admit(connection):
            connection.close()
            # asyncio waits for the next connection then, as if the peer had gone before it was accepted.
            raise ConnectionAbortedError(errno.ECONNABORTED, "too many connections")
        return connection, peer


def bind(addresses: Sequence[Address], limits: Limits = DEFAULT_LIMITS) -> list[socket.socket]:
    """Listen on every address, or on none. Raises ListenError.

    From here on connections queue up, and are answered once `serve` runs.
    """
    listeners: list[socket.socket] = []
    connections = Connections(limits)
    for address in addresses:
        try:
            listeners.append(_listen(address, connections, limits.backlog))
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that no name server could be asked for
            for listener in listeners:
                listener.close()
            raise _refusal(address, error) from error
    return listeners


def _refusal(address: Address, error: OSError | UnicodeError) -> ListenError:
    if isinstance(error, UnicodeError):
        return ListenError(f"cannot listen on {address}: not a host name")
    return ListenError(f"cannot listen on {address}: {error.strerror}", hint=_HINTS.get(error.errno or 0, ""))


def _listen(address: Address, connections: Connections, backlog: int) -> Listener:
    family, where = _resolve(address)
    listener = Listener(family, connections)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(bool(address.host)))
        listener.bind(where)
        listener.listen(backlog)
        listener.setblocking(False)  # noqa: FBT003 (the standard library's signature)
    except OSError:
        listener.close()
        raise
    return listener


def _resolve(address: Address) -> tuple[int, Any]:
    """Return family and socket address; an empty host is IPv6 and IPv4 in one, a name is its IPv4 address first."""
    if not address.host and socket.has_dualstack_ipv6():
        return socket.AF_INET6, ("::", address.port)
    found = socket.getaddrinfo(
        address.host or "0.0.0.0",  # noqa: S104 (asked for by an empty host)
        address.port,
        type=socket.SOCK_STREAM,
        flags=socket.AI_PASSIVE,
    )
    family, _, _, _, where = min(found, key=lambda each: each[0] != socket.AF_INET)
    return family, where


def url(listener: socket.socket, *, tls: bool = False) -> str:
    """Where a person on this machine finds the page that this socket serves."""
    host, port = listener.getsockname()[:2]
    host = {"::": "localhost", "0.0.0.0": "localhost"}.get(host, host)  # noqa: S104 (only shown)
    return f"http{'s' if tls else ''}://{Address(host, port)}/"


class _OurSockets(Config):
    """hypercorn's settings, with the sockets that are open already."""

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        limits: Limits,
        serving: asyncio.Event,
        context: ssl.SSLContext | None,
    ) -> None:
        super().__init__()
        self._listeners = list(listeners)
        self._serving = serving
        self._context = context
        self.ssl_handshake_timeout = limits.idle_seconds
        self.backlog = limits.backlog
        self.keep_alive_timeout = limits.idle_seconds
        self.read_timeout = limits.read_seconds
        self.h2_max_concurrent_streams = limits.streams
        self.graceful_timeout = limits.grace_seconds
        self.include_server_header = False
        self.accesslog = None
        self.errorlog = logging.getLogger("hypercorn.error")

    def create_sockets(self) -> Sockets:
        self._serving.set()  # hypercorn asks for them when all else is done, and accepts at once
        secure = self._listeners if self._context is not None else []
        return Sockets(secure_sockets=secure, insecure_sockets=[] if secure else self._listeners, quic_sockets=[])

    @property
    def ssl_enabled(self) -> bool:
        return self._context is not None

    def create_ssl_context(self) -> ssl.SSLContext | None:
        return self._context


async def serve(  # noqa: PLR0913 - what one server needs
    application: ASGIApp,
    listeners: Sequence[socket.socket],
    shutdown: asyncio.Event,
    limits: Limits = DEFAULT_LIMITS,
    *,
    serving: asyncio.Event | None = None,
    context: ssl.SSLContext | None = None,
) -> None:
    """Answer requests until `shutdown` is set, then close the sockets; ends within a second after that.

    Sets `serving` when requests are answered from now on. With a `context` it speaks TLS.
    """
    config = _OurSockets(listeners, limits, serving or asyncio.Event(), context)
    framework = cast("Any", application)  # the same protocol, spelt with other types
    server = asyncio.create_task(hypercorn_serve(framework, config, shutdown_trigger=shutdown.wait, mode="asgi"))
    stopping = asyncio.create_task(shutdown.wait())
    try:
        await asyncio.wait({server, stopping}, return_when=asyncio.FIRST_COMPLETED)
        # A server that ends by itself has failed; a stopping one gets its grace and a little to clean up.
        done, _ = await asyncio.wait({server}, timeout=limits.grace_seconds + 0.3)
        if done and not server.cancelled():
            server.result()
    finally:
        stopping.cancel()
        server.cancel()
        for listener in listeners:
            listener.close()

"""TLS: contexts made of a web configuration, the one in force at each handshake, and what is said of a failed one."""

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from vramscope.web.refusals import Refusals

_STILL_GOING = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
# The other side went away in the middle: a port scan or a health check of TCP, not a refusal.
_WENT_AWAY = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


@dataclass(frozen=True, kw_only=True)
class TlsFiles:
    """The server's certificate and its key; `authority` signs the certificates of clients."""

    certificate: Path
    key: Path
    authority: Path | None


def make_context(
    files: TlsFiles, verify: ssl.VerifyMode, versions: tuple[ssl.TLSVersion, ssl.TLSVersion], *, http2: bool
) -> ssl.SSLContext:
    """Make a context of the files. Raises ValueError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = versions
    context.options |= ssl.OP_NO_COMPRESSION | ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_TICKET
    context.num_tickets = 0  # a resumed session would outlive its certificate
    context.set_alpn_protocols(["h2", "http/1.1"] if http2 else ["http/1.1"])
    certificate, key, authority = files.certificate, files.key, files.authority
    _read("cert_file", certificate)
    _read("key_file", key)
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except (ssl.SSLError, OSError) as error:
        raise ValueError(
            f"cert_file {certificate} and key_file {key} are not usable together: {reason(error)}"
        ) from None
    if authority is not None:
        _read("client_ca_file", authority)
        try:
            context.load_verify_locations(authority)
        except (ssl.SSLError, OSError) as error:
            raise ValueError(f"client_ca_file {authority} has no certificate: {reason(error)}") from None
    context.verify_mode = verify
    context.sslobject_class = Handshake
    return context


def _read(name: str, path: Path) -> None:
    try:
        if path.exists() and not path.is_file():
            raise ValueError(f"{name} {path} is no file")
        with path.open("rb") as file:
            file.read(1)
    except OSError as error:
        raise ValueError(f"{name} {path} cannot be read: {error.strerror or error}") from None


def _no_password() -> NoReturn:
    """Nobody is at a terminal to type one."""
    raise OSError("the key is encrypted, and there is nobody to ask for its password")


def reason(error: OSError) -> str:
    """What OpenSSL complains about, in words."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return "not PEM" if isinstance(error, ssl.SSLError) else error.strerror or str(error)


class Handshake(ssl.SSLObject):
    """A connection that tells why its handshake failed; asyncio says nothing of it."""

    refusals: Refusals

    def do_handshake(self) -> None:
        try:
            super().do_handshake()
        except (*_STILL_GOING, *_WENT_AWAY):
            raise
        except ssl.SSLError as error:
            self.refusals.tell("tls_refused", reason(error))
            raise


class CurrentContext(ssl.SSLContext):
    """A context for a server that stays, in which each handshake uses the context that is in force then."""

    _current: Callable[[], ssl.SSLContext]
    _refusals: Refusals

    @classmethod
    def of(cls, current: Callable[[], ssl.SSLContext], refusals: Refusals) -> "CurrentContext":
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context._current = current
        context._refusals = refusals
        return context

    def wrap_bio(self, *arguments: Any, **settings: Any) -> ssl.SSLObject:
        """asyncio comes here at the start of each handshake."""
        handshake: Handshake = self._current().wrap_bio(*arguments, **settings)  # type: ignore[assignment]
        handshake.refusals = self._refusals
        return handshake

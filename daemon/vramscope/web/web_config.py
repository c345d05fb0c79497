"""Reads the file of --web-config: TLS, client certificates and basic auth.

The format is that of Prometheus' exporters, so that one file serves all of a machine
(https://github.com/prometheus/exporter-toolkit/blob/master/docs/web-configuration.md). What Python's TLS cannot do is
refused by name.
"""

import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, ValidationError

from vramscope.errors import VramscopeError
from vramscope.plan.explain import complaints
from vramscope.plan.fields import one_of, text
from vramscope.plan.kinds import Fields
from vramscope.plan.nodes import Document, read_document
from vramscope.plan.problems import PlanError, Problem
from vramscope.units import shown
from vramscope.web.tls import TlsFiles, make_context

MAX_FILE_BYTES = 1024 * 1024
# bcrypt doubles its work with each; 15 takes some two seconds for each new password.
MOST_COST = 15

_HASH = re.compile(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{53}")
_HEADERS = (
    "Content-Security-Policy",
    "X-Frame-Options",
    "X-Content-Type-Options",
    "X-XSS-Protection",
    "Strict-Transport-Security",
)
_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}


class WebConfigError(VramscopeError):
    """The web configuration cannot be used as it is."""


@dataclass(frozen=True, kw_only=True)
class WebConfig:
    """What a web configuration asks for. `context` is None for plain HTTP, `users` maps name to bcrypt hash.

    `files` are all files that it was made of.
    """

    context: ssl.SSLContext | None = None
    users: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}), repr=False)
    headers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    files: tuple[Path, ...] = ()


def _users(value: object) -> object:
    """User to hash. No message shows a value: it may be a password that somebody wrote where its hash belongs."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ValueError("expected a mapping of users to bcrypt hashes")  # noqa: TRY004 - pydantic's word
    for user, hashed in value.items():
        if not user or ":" in user:
            raise ValueError(f"expected the name of a user, without a colon; got {shown(user)}")
        found = _HASH.fullmatch(hashed) if isinstance(hashed, str) else None
        if found is None:
            raise ValueError(f"expected a bcrypt hash for {shown(user)}, as `htpasswd -nBC 10 {user}` makes it")
        if not 4 <= int(found[1]) <= MOST_COST:  # noqa: PLR2004 - bcrypt's own least
            raise ValueError(
                f"expected a bcrypt hash with a cost from 4 to {MOST_COST} for {shown(user)}, got {found[1]}"
            )
    return value


def _headers(value: object) -> object:
    if not isinstance(value, dict):
        raise ValueError(f"expected a mapping of headers, got {shown(value)}")  # noqa: TRY004 - as above
    for name, content in value.items():
        one_of(*_HEADERS).func(name)  # type: ignore[call-arg]
        if not isinstance(content, str) or not content.isprintable() or not content.isascii():
            raise ValueError(f"expected text of one line for {name}, got {shown(content)}")
    return value


def _or_empty(value: object) -> object:
    """A key without a value is as good as none."""
    return {} if value is None else value


FileName = Annotated[str, BeforeValidator(text)]
Version = Annotated[Literal["TLS12", "TLS13"], one_of(*_VERSIONS)]


class TlsFields(Fields):
    """`tls_server_config`."""

    cert_file: FileName | None = None
    key_file: FileName | None = None
    client_auth_type: Annotated[str, one_of(*_CLIENT_AUTH)] = "NoClientCert"
    client_ca_file: FileName | None = None
    min_version: Version = "TLS12"
    max_version: Version = "TLS13"


class HttpFields(Fields):
    """`http_server_config`."""

    http2: Annotated[bool, Field(strict=True)] = True
    headers: Annotated[dict[str, str], BeforeValidator(_headers)] = Field(default_factory=dict)


class WebFields(Fields):
    """The whole file."""

    tls_server_config: Annotated[TlsFields, BeforeValidator(_or_empty)] = TlsFields()
    http_server_config: Annotated[HttpFields, BeforeValidator(_or_empty)] = HttpFields()
    basic_auth_users: Annotated[dict[str, str], BeforeValidator(_users)] = Field(default_factory=dict)


def load_web_config(path: Path) -> WebConfig:
    """Read the file and what it names. Raises WebConfigError, with every problem that the file itself has."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise WebConfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    try:
        return _make(_fields(content, path), path)
    except PlanError as error:
        raise WebConfigError(str(error)) from None


def _fields(content: bytes, path: Path) -> tuple[WebFields, Document | None]:
    if all(line.strip()[:1] in (b"", b"#") for line in content.splitlines()):  # nothing is asked for: that is allowed
        return WebFields(), None
    document = read_document(content, str(path))
    if not isinstance(document.value, dict):  # not shown: it may be a password file of another kind
        raise PlanError([document.problem((), "expected a mapping with tls_server_config or basic_auth_users")])
    try:
        fields = WebFields.model_validate(document.value)
    except ValidationError as error:
        found = [document.problem(each.path, each.message, key=each.about_key) for each in complaints(error, WebFields)]
        raise PlanError([*document.problems, *found]) from None
    if document.problems:
        raise PlanError(document.problems)
    return fields, document


def _make(read: tuple[WebFields, Document | None], path: Path) -> WebConfig:
    fields, document = read
    tls = fields.tls_server_config
    users, headers = MappingProxyType(fields.basic_auth_users), MappingProxyType(fields.http_server_config.headers)
    if document is None or not tls.model_fields_set:
        return WebConfig(users=users, headers=headers, files=(path,))
    for name in ("cert_file", "key_file"):
        if not getattr(tls, name):
            raise _problem(document, f'missing key "{name}"')
    verify = _CLIENT_AUTH[tls.client_auth_type]
    if verify is not ssl.CERT_NONE and not tls.client_ca_file:
        raise _problem(document, f'client_auth_type {tls.client_auth_type} needs "client_ca_file"')
    if verify is ssl.CERT_NONE and tls.client_ca_file:
        raise _problem(document, 'client_ca_file asks nobody without "client_auth_type: RequireAndVerifyClientCert"')
    if tls.min_version > tls.max_version:
        raise _problem(document, f"min_version {tls.min_version} is above max_version {tls.max_version}")
    files = _files(tls, path.parent)
    versions = _VERSIONS[tls.min_version], _VERSIONS[tls.max_version]
    try:
        context = make_context(files, verify, versions, http2=fields.http_server_config.http2)
    except ValueError as error:
        raise _problem(document, str(error)) from None
    watched = (path, files.certificate, files.key, *([files.authority] if files.authority else []))
    return WebConfig(context=context, users=users, headers=headers, files=watched)


def _files(tls: TlsFields, directory: Path) -> TlsFiles:
    """The files' paths; relative ones start at the file that names them, as in exporter-toolkit."""
    return TlsFiles(
        certificate=directory / (tls.cert_file or ""),
        key=directory / (tls.key_file or ""),
        authority=directory / tls.client_ca_file if tls.client_ca_file else None,
    )


def _problem(document: Document, message: str) -> PlanError:
    problem: Problem = document.problem(("tls_server_config",), message)
    return PlanError([problem])

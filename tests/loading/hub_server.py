"""A stand-in of the Hugging Face hub on loopback: a few models, and what goes wrong with real ones."""

import hashlib
import json
import re
import socket
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PIECE_BYTES = 64 << 10
_INFO = re.compile(r"/api/models/(?P<id>[^/]+/[^/]+)(?:/revision/(?P<revision>[^/]+))?")
_FILE = re.compile(r"/(?P<id>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<name>.+)")


@dataclass
class Drop:
    """A connection that ends after so many bytes of a body, in order or with a reset."""

    after_bytes: int
    reset: bool = False


@dataclass
class HubServer:
    """`files` by model. `drops` and `limits` (HTTP 429) are used up one an answer; `refusals` are for every one.

    `bytes_per_second` is how fast a body comes, and after `stalls_after_bytes` nothing does until that is None again;
    `sizes` are lies about a file's size.
    """

    files: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    drops: list[Drop] = field(default_factory=list)
    limits: int = 0
    refusals: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    bytes_per_second: float | None = None
    stalls_after_bytes: int | None = None
    requests: list[tuple[str, str]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    sent_bytes: int = 0
    url: str = ""

    def add(self, hub_id: str, directory: Path) -> None:
        """Offer the files of a directory."""
        self.files[hub_id] = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}

    def asked(self, name: str) -> list[str]:
        """The ranges that were asked for of a file; an empty one is all of it."""
        return [asked for path, asked in self.requests if path.endswith(f"/{name}")]

    def info(self, hub_id: str) -> dict[str, Any]:
        siblings = [self._sibling(name, content) for name, content in self.files[hub_id].items()]
        return {"_id": "0", "id": hub_id, "sha": COMMIT, "private": False, "tags": [], "siblings": siblings}

    def _sibling(self, name: str, content: bytes) -> dict[str, Any]:
        size = self.sizes.get(name, len(content))
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
        entry: dict[str, Any] = {"rfilename": name, "size": size, "blobId": blob}
        if name.endswith((".safetensors", ".bin")):
            entry["lfs"] = {"sha256": hashlib.sha256(content).hexdigest(), "size": size, "pointerSize": 130}
        return entry


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: HubServer

    def do_GET(self) -> None:
        hub, path = self.hub, unquote(urlsplit(self.path).path)
        hub.requests.append((path, self.headers.get("Range", "")))
        hub.tokens.add(self.headers.get("Authorization", ""))
        found = _INFO.fullmatch(path) or _FILE.fullmatch(path)
        hub_id = found["id"] if found else ""
        if hub_id in hub.refusals:
            self._refuse(*hub.refusals[hub_id])
        elif hub_id not in hub.files or found is None:
            self._refuse(401, {"X-Error-Code": "RepoNotFound"})
        elif found["revision"] not in {None, "main", COMMIT}:
            self._refuse(404, {"X-Error-Code": "RevisionNotFound"})
        elif "name" not in found.groupdict():
            self._answer(json.dumps(hub.info(hub_id)).encode())
        elif hub.limits:
            hub.limits -= 1
            self._refuse(429, {"Retry-After": "0"})
        elif found["name"] not in hub.files[hub_id]:
            self._refuse(404, {"X-Error-Code": "EntryNotFound"})
        else:
            self._answer(hub.files[hub_id][found["name"]])

    def _refuse(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response_only(status)
        for name, value in {**headers, "Content-Length": "0"}.items():
            self.send_header(name, value)
        self.end_headers()

    def _answer(self, content: bytes) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        start = int(asked[1]) if asked else 0
        self.send_response_only(206 if asked else 200)
        self.send_header("Content-Length", str(len(content) - start))
        if asked:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        large = len(content) > PIECE_BYTES
        drop = self.hub.drops.pop(0) if self.hub.drops and large else None
        self._send(content[start : start + drop.after_bytes] if drop else content[start:])
        if drop:
            self._drop(drop)

    def _send(self, body: bytes) -> None:
        for offset in range(0, len(body), PIECE_BYTES):
            piece = body[offset : offset + PIECE_BYTES]
            self.wfile.write(piece)
            self.hub.sent_bytes += len(piece)
            if self.hub.bytes_per_second:
                time.sleep(len(piece) / self.hub.bytes_per_second)
            while self.hub.stalls_after_bytes is not None and self.hub.sent_bytes >= self.hub.stalls_after_bytes:
                time.sleep(0.02)

    def _drop(self, drop: Drop) -> None:
        self.close_connection = True
        self.wfile.flush()
        if drop.reset:
            time.sleep(0.3)  # a reset takes away what the client has not read yet
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """A client that was killed has gone in the middle."""

    def shutdown_request(self, request: Any) -> None:
        self.close_request(request)  # without the orderly end that the base class makes of every connection


@contextmanager
def serving(hub: HubServer) -> Iterator[HubServer]:
    """Serve as long as the block lasts."""
    handler = type("Handler", (_Handler,), {"hub": hub})
    server = _Server(("127.0.0.1", 0), handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join(60)
        server.server_close()

"""Checksums of a model's files, and those that the Hugging Face hub's cache names them by."""

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from vramscope.errors import SourceError
from vramscope.events import Fact
from vramscope.loading.monitor import Monitor

Answer = TypeVar("Answer")

HASH_BYTES = 4 << 20
SHA256_DIGITS = 64
HEX_DIGITS = frozenset("0123456789abcdef")
BLOBS = "blobs"


def git_or_sha256(path: Path, like: str) -> str:
    """The checksum of a file of the kind of `like`: SHA-256, or git's SHA-1 of a blob, which small files have."""
    if len(like) == SHA256_DIGITS:
        return _digest(path, hashlib.sha256())
    return _digest(path, hashlib.sha1(b"blob %d\0" % path.stat().st_size, usedforsecurity=False))


def verify_files(paths: tuple[Path, ...], monitor: Monitor) -> Mapping[str, Fact]:
    """Read every file for its SHA-256, in the phase `verify`, and compare those that lie in a hub's cache.

    Returns facts: `files_sha256`, of a single file its own sum, of several that of the lines which sha256sum(1) prints,
    sorted; `files_compared`, of how many the hub's cache names the sum. Raises SourceError for a file that
    cannot be read or has another sum than its name says, StepCancelledError.
    """
    sums = _sums(paths, monitor)
    named = [_named_sum(path) for path in paths]
    for path, found, expected in zip(paths, sums, named, strict=True):
        if expected not in (None, found):
            hint = "the file was damaged after it had come; delete it and fetch the model again"
            raise SourceError(f"{path}: has the SHA-256 {found}, and the hub's cache names it {expected}", hint=hint)
    return {"files_sha256": _sum_of_all(paths, sums), "files_compared": len(paths) - named.count(None)}


def _sums(paths: tuple[Path, ...], monitor: Monitor) -> list[str]:
    done, total = 0, sum(_readable(path, lambda path: path.stat().st_size) for path in paths)

    def tell(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        monitor.progress(done, total)
        monitor.check_cancelled()

    with monitor.phase("verify") as phase:
        phase.nbytes = total
        return [_readable(path, lambda path: _digest(path, hashlib.sha256(), tell)) for path in paths]


def _readable(path: Path, ask: Callable[[Path], Answer]) -> Answer:
    """Ask something of a file. The system's error of a read does not name the file, as that of an open does."""
    try:
        return ask(path)
    except OSError as error:
        raise SourceError(f"{path}: cannot be read: {error.strerror}") from None


def _digest(path: Path, digest: Any, tell: Callable[[int], None] = lambda _: None) -> str:
    with path.open("rb", buffering=0) as opened:
        while chunk := opened.read(HASH_BYTES):
            digest.update(chunk)
            tell(len(chunk))
    return str(digest.hexdigest())


def _named_sum(path: Path) -> str | None:
    """The SHA-256 that a file has by its name: a hub's cache links snapshots to blobs/SHA256."""
    blob = path.resolve()
    is_sum = len(blob.name) == SHA256_DIGITS and HEX_DIGITS.issuperset(blob.name)
    return blob.name if is_sum and blob.parent.name == BLOBS else None


def _sum_of_all(paths: tuple[Path, ...], sums: list[str]) -> str:
    if len(sums) == 1:
        return sums[0]
    lines = sorted(f"{found}  {path.name}\n" for path, found in zip(paths, sums, strict=True))
    return hashlib.sha256("".join(lines).encode()).hexdigest()

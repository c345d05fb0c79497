"""Finds a model in Hugging Face's hub cache, without the network and without leaving the cache.

The layout (https://huggingface.co/docs/huggingface_hub/guides/manage-cache): models--ORG--NAME/refs/REVISION holds a
commit, snapshots/COMMIT the files, mostly as links into blobs.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from vramscope.errors import NotHereError, SourceError

_REF_LIMIT_BYTES = 1024
_ID_LIMIT = 96
_ID = re.compile(r"(?:[A-Za-z0-9][\w.-]*/)?[A-Za-z0-9][\w.-]*", re.ASCII)
_PLAIN = re.compile(r"\w[\w.+-]*", re.ASCII)
_FETCH = "fetch it with `hf download {0}`"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One revision of a model in the cache."""

    directory: Path
    commit: str


def is_hub_id(source: str) -> bool:
    """Whether `source` has the form of a hub id: NAME or ORG/NAME."""
    return bool(_ID.fullmatch(source)) and len(source) <= _ID_LIMIT and ".." not in source and "--" not in source


def find_snapshot(hub_id: str, revision: str, hub_cache: Path) -> Snapshot:
    """Find the snapshot of `hub_id` at `revision` (a branch, tag or commit); SourceError if it is not there."""
    if not all(_PLAIN.fullmatch(part) for part in revision.split("/")):
        raise SourceError(f"{hub_id}: the revision {revision!r} is no name of a branch, a tag or a commit")
    home = hub_cache / f"models--{hub_id.replace('/', '--')}"
    if not home.is_dir():
        raise NotHereError(f"{hub_id}: not in the hub cache {hub_cache}", hint=_FETCH.format(hub_id))
    commit = _commit(hub_id, revision, home)
    directory = home / "snapshots" / commit
    if not directory.is_dir():
        at = revision if revision == commit else f"{revision} (commit {commit[:12]})"
        reason = f"revision {at} is not in the hub cache {hub_cache}"
        raise NotHereError(f"{hub_id}: {reason}", hint=_other_snapshots(home) or _FETCH.format(hub_id))
    _check_inside(directory, hub_cache)
    return Snapshot(directory=directory, commit=commit)


def _commit(hub_id: str, revision: str, home: Path) -> str:
    ref = home / "refs" / revision
    if not ref.is_file():  # a commit, or a name that was never fetched: either way the snapshot's directory decides
        return revision
    try:
        with ref.open("rb") as file:
            text = file.read(_REF_LIMIT_BYTES).decode("utf-8", "replace").strip()
    except OSError as error:
        raise SourceError(f"{ref}: {error.strerror or error}") from None
    if not _PLAIN.fullmatch(text):
        reason = f"expected a commit, got {text[:80]!r}" if text else "the file is empty"
        raise SourceError(f"{ref}: {reason}", hint=f"the cache is damaged; {_FETCH.format(hub_id)}")
    return text


def _other_snapshots(home: Path) -> str:
    try:
        names = sorted(entry.name for entry in (home / "snapshots").iterdir())
    except OSError:
        return ""
    return f"the cache has {', '.join(names[:3])}; name it as `revision` to use it" if names else ""


def _check_inside(directory: Path, hub_cache: Path) -> None:
    """Refuse links that lead out of the cache; inside they may lead anywhere, as models can share blobs."""
    roots = (hub_cache.resolve(), (directory.parent.parent / "blobs").resolve())
    try:
        paths = [directory, *directory.iterdir()]
        targets = {path: path.resolve() for path in paths}
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links, before Python 3.13
        raise SourceError(f"{directory}: {error}") from None
    for path, target in targets.items():
        if not any(target.is_relative_to(root) for root in roots):
            raise SourceError(
                f"{path}: the link leads out of the hub cache", hint="nothing outside the cache is opened"
            )

"""Files that are not there, or that are something else than their name says, known by their first bytes."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from vramscope.errors import NotHereError

_LFS = re.compile(rb"version https://git-lfs\.github\.com/spec/v\d+\n(?:.*\n)*?size (\d{1,19})\n")


@dataclass(frozen=True, slots=True)
class Foreign:
    """What a file really is, and what to do about it."""

    what: str
    hint: str


SAFETENSORS = "safetensors"
_FETCH = "fetch the file itself, for example with `hf download`"
_BY_START = (
    (b"gguf", Foreign("a GGUF file", "vramscope reads safetensors; take the original checkpoint")),
    (b"pk\x03\x04", Foreign("a zip archive (a PyTorch pickle)", "convert it to safetensors")),
    (b"\x80\x02", Foreign("a Python pickle", "convert it to safetensors")),
    (b"<!doctype html", Foreign("an HTML page", _FETCH)),
    (b"<html", Foreign("an HTML page", _FETCH)),
    (b"<?xml", Foreign("an XML page", _FETCH)),
)


def missing(path: Path) -> NotHereError:
    """Make the error for a file that is not there; in a hub cache an interrupted download leaves a link to nothing."""
    if path.is_symlink():
        reason = "not downloaded: the link points to a file that is not there"
        return NotHereError(f"{path}: {reason}", hint="the download was interrupted; run it again")
    return NotHereError(f"{path}: no such file")


def what_it_is(start: bytes, *, wanted: str = SAFETENSORS) -> Foreign | None:
    """Name what a file that begins with `start` is, if known; asked only once it cannot be what is wanted."""
    if start.startswith(b"version https://git-lfs.github.com/spec/"):
        size = _LFS.match(start)
        real = f" to {int(size[1]):,} bytes" if size else ""
        kept = "the weights" if wanted == SAFETENSORS else wanted
        return Foreign(f"a Git LFS pointer{real}, not {kept}", "run `git lfs pull` in the repository")
    lowered = start.lstrip(b" \t\r\n").lower()
    if lowered.startswith(b'{"') and wanted == SAFETENSORS:
        return Foreign("a JSON text without the length of a safetensors header", _FETCH)
    known = next((known for begin, known in _BY_START if lowered.startswith(begin)), None)
    return replace(known, what=f"{known.what}, not {wanted}") if known else None

"""From what a plan calls a model's source to the files that a load reads, with every header checked."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramscope.anatomy import synthetic, weights
from vramscope.anatomy.config import read_config
from vramscope.anatomy.header import Header, TensorEntry, read_header
from vramscope.anatomy.hubcache import find_snapshot, is_hub_id
from vramscope.anatomy.jsonfile import shown
from vramscope.anatomy.recipes import recipe
from vramscope.errors import SourceError

SYNTHETIC = "synthetic:"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """The weights of one model on disk. `files` in the order in which a load reads them, `headers` likewise.

    `revision` is the commit of a hub snapshot, empty for a directory. File bytes hold headers, tensor bytes do not.
    """

    directory: Path
    files: tuple[Path, ...]
    headers: tuple[Header, ...]
    config: dict[str, Any]
    revision: str = ""

    @property
    def file_bytes(self) -> int:
        return sum(header.file_bytes for header in self.headers)

    @property
    def tensor_bytes(self) -> int:
        return sum(header.tensor_bytes for header in self.headers)

    @property
    def elements(self) -> int:
        return sum(header.elements for header in self.headers)

    @property
    def tensors(self) -> Iterator[tuple[Header, TensorEntry]]:
        return ((header, tensor) for header in self.headers for tensor in header.tensors)


def resolve(source: str, cache: Path, *, hub_cache: Path | None = None, revision: str = "main") -> Checkpoint:
    """Find the checkpoint that `source` names: a directory, a .safetensors file, a hub id or synthetic:NAME.

    Never uses the network and never reads the environment. `cache` is where synthetic checkpoints are kept; `hub_cache`
    is Hugging Face's, `revision` counts only there. A synthetic checkpoint that is not made yet is described as it will
    be; its files are there after synthetic.materialize. Raises SourceError: what is wrong and what to do.
    """
    try:
        return _resolve(source, cache, hub_cache, revision)
    except OSError as error:  # for example a name too long, or a directory that may not be searched
        raise SourceError(f"{shown(source)}: {error.strerror or error}") from None


def _resolve(source: str, cache: Path, hub_cache: Path | None, revision: str) -> Checkpoint:
    if source.startswith(SYNTHETIC):
        return _synthetic(source.removeprefix(SYNTHETIC), cache)
    path = Path(source)
    match _kind(source):
        case "directory":
            return _checkpoint(path, weights.read_headers(path))
        case "file":
            return _single_file(path)
    if not is_hub_id(source):
        hint = "a source is a directory, a .safetensors file, ORG/NAME on the hub, or synthetic:NAME"
        raise SourceError(f"{shown(source)}: no such file or directory", hint=hint)
    if hub_cache is None:
        raise SourceError(f"{source}: no such directory, and there is no hub cache to look it up in")
    snapshot = find_snapshot(source, revision, hub_cache)
    return _checkpoint(snapshot.directory, weights.read_headers(snapshot.directory), snapshot.commit)


def _checkpoint(directory: Path, headers: tuple[Header, ...], revision: str = "") -> Checkpoint:
    """Weights first, then the config: a directory without weights is better named for what it is."""
    return Checkpoint(
        directory=directory,
        files=tuple(header.path for header in headers),
        headers=headers,
        config=read_config(directory),
        revision=revision,
    )


def _synthetic(name: str, cache: Path) -> Checkpoint:
    directory = synthetic.directory_of(name, cache)
    if directory.is_dir():
        return _checkpoint(directory, weights.read_headers(directory))
    headers = synthetic.planned_headers(name, cache)
    files = tuple(header.path for header in headers)
    return Checkpoint(directory=directory, files=files, headers=headers, config=dict(recipe(name).config))


def _single_file(path: Path) -> Checkpoint:
    if path.suffix != weights.SUFFIX:
        raise SourceError(f"{path}: not a {weights.SUFFIX} file", hint="give the model's directory")
    return _checkpoint(path.parent, (read_header(path),))


def _kind(source: str) -> str:
    """Tell "directory", "file" (anything else that is there, a dangling link too) or ""."""
    if not source or "\0" in source:
        return ""
    path = Path(source)
    if path.is_dir():
        return "directory"
    return "file" if path.exists() or path.is_symlink() else ""

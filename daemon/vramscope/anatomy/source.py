"""From what a plan calls a model's source to the files that a load reads, with every header checked."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from vramscope.anatomy import synthetic, weights
from vramscope.anatomy.config import FILE_NAME, read_config
from vramscope.anatomy.header import Header, TensorEntry
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


@dataclass(frozen=True, kw_only=True)
class Examined:
    """What is known of a source, whole or not. `problems` are pairs of where and why, in a load's order.

    `config` is None where it could not be read; `is_whole` says whether every weight file could. `is_planned` is a
    synthetic checkpoint that is not made yet, `is_file` one weight file by itself.
    """

    directory: Path
    headers: tuple[Header, ...]
    config: dict[str, Any] | None = None
    revision: str = ""
    problems: tuple[tuple[Path, SourceError], ...] = ()
    notes: tuple[str, ...] = ()
    is_whole: bool = True
    is_planned: bool = False
    is_file: bool = False


def resolve(source: str, cache: Path, *, hub_cache: Path | None = None, revision: str = "main") -> Checkpoint:
    """Find the checkpoint that `source` names: a directory, a .safetensors file, a hub id or synthetic:NAME.

    Never uses the network and never reads the environment. `cache` is where synthetic checkpoints are kept; `hub_cache`
    is Hugging Face's, `revision` counts only there. A synthetic checkpoint that is not made yet is described as it will
    be; its files are there after synthetic.materialize. Raises SourceError: what is wrong and what to do.
    """
    examined = examine(source, cache, hub_cache=hub_cache, revision=revision)
    if examined.problems or examined.config is None:
        raise examined.problems[0][1]
    return Checkpoint(
        directory=examined.directory,
        files=tuple(header.path for header in examined.headers),
        headers=examined.headers,
        config=examined.config,
        revision=examined.revision,
    )


def steady(source: str) -> str:
    """A directory's name without the symbolic links that lead to it: one that is swapped meanwhile changes nothing."""
    return os.path.realpath(source) if os.path.isdir(source) else source  # noqa: PTH112 - raises for no name


def examine(source: str, cache: Path, *, hub_cache: Path | None = None, revision: str = "main") -> Examined:
    """Find what `resolve` would find, and keep what is known where it would raise.

    Raises SourceError where there is nothing to examine: no such source, or no such snapshot in the cache.
    """
    try:
        return _examine(source, cache, hub_cache, revision)
    except OSError as error:  # for example a name too long, or a directory that may not be searched
        raise SourceError(f"{shown(source)}: {error.strerror or error}") from None


def _examine(source: str, cache: Path, hub_cache: Path | None, revision: str) -> Examined:
    if source.startswith(SYNTHETIC):
        return _synthetic(source.removeprefix(SYNTHETIC), cache)
    path = Path(source)
    match _kind(source):
        case "directory":
            return _examined(path, weights.find_headers(path))
        case "file":
            return _single_file(path)
    if not is_hub_id(source):
        hint = "a source is a directory, a .safetensors file, ORG/NAME on the hub, or synthetic:NAME"
        raise SourceError(f"{shown(source)}: no such file or directory", hint=hint)
    if hub_cache is None:
        raise SourceError(f"{source}: no such directory, and there is no hub cache to look it up in")
    snapshot = find_snapshot(source, revision, hub_cache)
    return replace(_examined(snapshot.directory, weights.find_headers(snapshot.directory)), revision=snapshot.commit)


def _examined(directory: Path, found: weights.Found) -> Examined:
    """Weights first, then the config: a directory without weights is better named for what it is."""
    config, problems = None, found.problems
    try:
        config = read_config(directory)
    except SourceError as error:
        problems = (*problems, (directory / FILE_NAME, error))
    return Examined(
        directory=directory,
        headers=found.headers,
        config=config,
        problems=problems,
        notes=found.notes,
        is_whole=found.is_whole,
    )


def _synthetic(name: str, cache: Path) -> Examined:
    directory = synthetic.directory_of(name, cache)
    if directory.is_dir():
        return _examined(directory, weights.find_headers(directory))
    headers = synthetic.planned_headers(name, cache)
    return Examined(directory=directory, headers=headers, config=dict(recipe(name).config), is_planned=True)


def _single_file(path: Path) -> Examined:
    if path.suffix != weights.SUFFIX:
        pickled = "a pickle, which is never opened, and " if path.suffix in weights.PICKLES else ""
        raise SourceError(f"{path}: {pickled}not a {weights.SUFFIX} file", hint="give the model's directory")
    return replace(_examined(path.parent, weights.find_one(path)), is_file=True)


def _kind(source: str) -> str:
    """Tell "directory", "file" (anything else that is there, a dangling link too) or ""."""
    if not source or "\0" in source:
        return ""
    path = Path(source)
    if path.is_dir():
        return "directory"
    return "file" if path.exists() or path.is_symlink() else ""

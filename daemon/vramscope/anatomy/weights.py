"""Which weight files of a directory a load reads, and their headers. No other file of the directory is opened.

As transformers 5 does it: model.safetensors alone if it is there, else the shards that the index names. Everything else
(consolidated.safetensors, subdirectories, pickles) is not looked at, save to say what a directory without weights is.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramscope.anatomy import jsonfile
from vramscope.anatomy.header import Header, read_header
from vramscope.errors import NotHereError, SourceError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SUFFIX = ".safetensors"
ADAPTER_CONFIG = "adapter_config.json"

PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_OTHERS = (".h5", ".msgpack", ".onnx", ".npz")
_DRIVE = re.compile(r"[A-Za-z]:")


@dataclass(frozen=True, kw_only=True)
class Found:
    """The weight files of a directory: what could be read, what is wrong, and what is odd but harms nothing.

    `problems` are pairs of where and why, in the order in which a load would meet them. `is_whole` is False where a
    file that belongs to the model could not be read, so that `headers` tell only of a part.
    """

    headers: tuple[Header, ...] = ()
    problems: tuple[tuple[Path, SourceError], ...] = ()
    notes: tuple[str, ...] = ()
    is_whole: bool = False


def read_headers(directory: Path) -> tuple[Header, ...]:
    """Read and check the headers of the weight files in `directory`, in the order in which a load reads them."""
    found = find_headers(directory)
    if found.problems:
        raise found.problems[0][1]
    return found.headers


def find_headers(directory: Path) -> Found:
    """Read what can be read of the weight files in `directory`, and gather what is wrong with the others."""
    try:
        names = _names(directory)
        if SINGLE not in names and INDEX not in names:
            return Found(problems=((directory, _no_weights(directory, names)),))
    except SourceError as error:
        return Found(problems=((directory, error),))
    if SINGLE in names:
        return find_one(directory / SINGLE)
    try:
        mapped, stated_bytes = _read_index(directory / INDEX)
    except SourceError as error:
        return Found(problems=((directory / INDEX, error),))
    headers, problems = _read_shards(directory, mapped)
    is_whole = not problems
    problems += [(directory / INDEX, error) for error in _misplaced(directory / INDEX, mapped, headers)]
    notes = () if problems else _wrong_total(stated_bytes, headers)
    return Found(headers=headers, problems=tuple(problems), notes=notes, is_whole=is_whole)


def find_one(path: Path) -> Found:
    """Read one weight file, as `find_headers` does."""
    try:
        return Found(headers=(read_header(path),), is_whole=True)
    except SourceError as error:
        return Found(problems=((path, error),))


def _names(directory: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in directory.iterdir())
    except OSError as error:
        raise SourceError(f"{directory}: {error.strerror or error}") from None


def _read_index(path: Path) -> tuple[dict[str, list[str]], object]:
    """Shard to its tensors' names, and the total that the index states. Every name is checked before any is opened."""
    index = jsonfile.read_object(path)
    weight_map = index.get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise SourceError(f'{path}: "weight_map": expected an object with one entry a tensor')
    mapped: dict[str, list[str]] = defaultdict(list)
    for tensor, shard in weight_map.items():
        if not isinstance(shard, str) or not _is_plain(shard):
            where = f'{path}: "weight_map": {jsonfile.shown(tensor)}'
            reason = f"expected the name of a file beside the index, got {jsonfile.shown(shard)}"
            raise SourceError(f"{where}: {reason}", hint="nothing outside the model's directory is opened")
        if not shard.endswith(SUFFIX):
            where = f'{path}: "weight_map": {jsonfile.shown(tensor)}'
            raise SourceError(f"{where}: expected a {SUFFIX} file, got {jsonfile.shown(shard)}")
        mapped[shard].append(tensor)
    metadata = index.get("metadata")
    return mapped, metadata.get("total_size") if isinstance(metadata, dict) else None


def _is_plain(name: str) -> bool:
    """Whether `name` can only mean a file of its own directory, on any system."""
    return not (name in {"", ".", ".."} or any(sign in name for sign in "/\\\0") or _DRIVE.match(name))


def _read_shards(directory: Path, shards: Iterable[str]) -> tuple[tuple[Header, ...], list[tuple[Path, SourceError]]]:
    """Read every shard that can be read, in the order of their names."""
    headers, problems = [], []
    for path in (directory / shard for shard in sorted(shards)):
        try:
            headers.append(_read_shard(path))
        except SourceError as error:
            problems.append((path, error))
    return tuple(headers), problems


def _read_shard(path: Path) -> Header:
    if not os.path.lexists(path):
        hint = "a download was interrupted or a file was lost; fetch it again"
        raise NotHereError(f"{path}: the shard is missing, {INDEX} names it", hint=hint)
    return read_header(path)


def _misplaced(index: Path, mapped: Mapping[str, list[str]], headers: Iterable[Header]) -> Iterator[SourceError]:
    """Tell which names are in two shards, and which are not in the shard where the index has them."""
    home: dict[str, str] = {}
    for header in headers:
        shard = header.path.name
        twice = [tensor.name for tensor in header.tensors if home.setdefault(tensor.name, shard) != shard]
        if twice:
            reason = f"{_tensors(twice)} in {home[twice[0]]} and in {shard}"
            yield SourceError(f"{index}: {reason}", hint="the shards belong to different checkpoints")
    for shard in sorted({header.path.name for header in headers}):
        if absent := [name for name in mapped[shard] if home.get(name) != shard]:
            hint = "index and shards do not belong together; fetch them again"
            yield SourceError(f"{index}: {_tensors(absent, no='not ')} in {shard}", hint=hint)


def _tensors(names: Sequence[str], no: str = "") -> str:
    """Say of some tensors that they are (or are `no`) somewhere, for messages."""
    first = f"the tensor {jsonfile.shown(names[0])}"
    verb = " is" if len(names) == 1 else f" and {len(names) - 1:,} more are"
    return f"{first}{verb} {no}".rstrip()


def _wrong_total(stated: object, headers: Iterable[Header]) -> tuple[str, ...]:
    """Say where the index states another size than its shards have. Loaders do not look at it, people do."""
    actual = sum(header.tensor_bytes for header in headers)
    if stated is None or stated == actual:
        return ()
    return (f'{INDEX} says "total_size" {jsonfile.shown(stated)}, its shards hold {actual:,} bytes of tensors',)


def _no_weights(directory: Path, names: list[str]) -> SourceError:
    """Say what a directory without weights to load is, by its names alone: a pickle is never opened."""
    if ADAPTER_CONFIG in names or "adapter_model.safetensors" in names:
        return _adapter(directory, names)
    safetensors = [name for name in names if name.endswith(SUFFIX)]
    pickles = [name for name in names if name.endswith(PICKLES)]
    gguf = [name for name in names if name.lower().endswith(".gguf")]
    others = [name for name in names if name.endswith(_OTHERS)]
    need = f"neither {SINGLE} nor {INDEX} is there"
    if safetensors:
        hint = "to read one file by itself, give its path"
        return SourceError(f"{directory}: {need}, only {few(safetensors)}", hint=hint)
    if pickles:
        hint = "a pickle can run any code, so it is not opened; convert it to safetensors"
        return SourceError(f"{directory}: only pickled weights ({few(pickles)}), no safetensors", hint=hint)
    if gguf:
        hint = "take the checkpoint that the GGUF file was made from"
        return SourceError(f"{directory}: only GGUF weights ({few(gguf)}), which vramscope does not read", hint=hint)
    if others:
        hint = "take the safetensors files of the same model"
        return SourceError(f"{directory}: only {few(others)}, which vramscope does not read", hint=hint)
    return NotHereError(f"{directory}: no weights: {need}", hint="is this the model's own directory, fully downloaded?")


def _adapter(directory: Path, names: list[str]) -> SourceError:
    config: dict[str, Any] = {}
    if ADAPTER_CONFIG in names:
        config = jsonfile.read_object(directory / ADAPTER_CONFIG)
    base = config.get("base_model_name_or_path")
    of = f" for {base}" if isinstance(base, str) and base else ""
    reason = f"only an adapter{of}, not a whole model"
    return SourceError(f"{directory}: {reason}", hint="merge it into its base model, or load the base model")


def few(names: list[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")

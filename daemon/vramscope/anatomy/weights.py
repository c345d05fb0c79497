"""Which weight files of a directory a load reads, and their headers. No other file of the directory is opened.

As transformers 5 does it: model.safetensors alone if it is there, else the shards that the index names. Everything else
(consolidated.safetensors, subdirectories, pickles) is not looked at, save to say what a directory without weights is.
"""

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from vramscope.anatomy import jsonfile
from vramscope.anatomy.header import Header, read_header
from vramscope.errors import SourceError

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"
SUFFIX = ".safetensors"
ADAPTER_CONFIG = "adapter_config.json"

_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_OTHERS = (".h5", ".msgpack", ".onnx", ".npz")
_DRIVE = re.compile(r"[A-Za-z]:")


def read_headers(directory: Path) -> tuple[Header, ...]:
    """Read and check the headers of the weight files in `directory`, in the order in which a load reads them."""
    names = _names(directory)
    if SINGLE in names:
        return (read_header(directory / SINGLE),)
    if INDEX not in names:
        raise _no_weights(directory, names)
    mapped = _read_index(directory / INDEX)
    headers = tuple(_read_shard(directory, shard) for shard in sorted(mapped))
    _check_tensors(directory / INDEX, mapped, headers)
    return headers


def _names(directory: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in directory.iterdir())
    except OSError as error:
        raise SourceError(f"{directory}: {error.strerror or error}") from None


def _read_index(path: Path) -> dict[str, list[str]]:
    """Shard to its tensors' names. Every shard's name is checked before any shard is opened."""
    weight_map = jsonfile.read_object(path).get("weight_map")
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
    return mapped


def _is_plain(name: str) -> bool:
    """Whether `name` can only mean a file of its own directory, on any system."""
    return not (name in {"", ".", ".."} or any(sign in name for sign in "/\\\0") or _DRIVE.match(name))


def _read_shard(directory: Path, shard: str) -> Header:
    path = directory / shard
    if not os.path.lexists(path):
        hint = "a download was interrupted or a file was lost; fetch it again"
        raise SourceError(f"{path}: the shard is missing, {INDEX} names it", hint=hint)
    return read_header(path)


def _check_tensors(index: Path, mapped: Mapping[str, Iterable[str]], headers: Iterable[Header]) -> None:
    """Check that every tensor of the index is in its shard, and that no name is in two shards."""
    home: dict[str, str] = {}
    for header in headers:
        shard = header.path.name
        for tensor in header.tensors:
            if (other := home.setdefault(tensor.name, shard)) != shard:
                twice = f"the tensor {jsonfile.shown(tensor.name)} is in {other} and in {shard}"
                raise SourceError(f"{index.parent}: {twice}", hint="the shards belong to different checkpoints")
    for shard, tensors in mapped.items():
        for name in tensors:
            if home.get(name) != shard:
                where = f"{index}: the tensor {jsonfile.shown(name)} is not in {shard}"
                raise SourceError(where, hint="index and shards do not belong together; fetch them again")


def _no_weights(directory: Path, names: list[str]) -> SourceError:
    """Say what a directory without weights to load is, by its names alone: a pickle is never opened."""
    if ADAPTER_CONFIG in names or "adapter_model.safetensors" in names:
        return _adapter(directory, names)
    safetensors = [name for name in names if name.endswith(SUFFIX)]
    pickles = [name for name in names if name.endswith(_PICKLES)]
    gguf = [name for name in names if name.lower().endswith(".gguf")]
    others = [name for name in names if name.endswith(_OTHERS)]
    need = f"neither {SINGLE} nor {INDEX} is there"
    if safetensors:
        hint = "to read one file by itself, give its path"
        return SourceError(f"{directory}: {need}, only {_few(safetensors)}", hint=hint)
    if pickles:
        hint = "a pickle can run any code, so it is not opened; convert it to safetensors"
        return SourceError(f"{directory}: only pickled weights ({_few(pickles)}), no safetensors", hint=hint)
    if gguf:
        hint = "take the checkpoint that the GGUF file was made from"
        return SourceError(f"{directory}: only GGUF weights ({_few(gguf)}), which vramscope does not read", hint=hint)
    if others:
        hint = "take the safetensors files of the same model"
        return SourceError(f"{directory}: only {_few(others)}, which vramscope does not read", hint=hint)
    return SourceError(f"{directory}: no weights: {need}", hint="is this the model's own directory, fully downloaded?")


def _adapter(directory: Path, names: list[str]) -> SourceError:
    config: dict[str, Any] = {}
    if ADAPTER_CONFIG in names:
        config = jsonfile.read_object(directory / ADAPTER_CONFIG)
    base = config.get("base_model_name_or_path")
    of = f" for {base}" if isinstance(base, str) and base else ""
    reason = f"only an adapter{of}, not a whole model"
    return SourceError(f"{directory}: {reason}", hint="merge it into its base model, or load the base model")


def _few(names: list[str]) -> str:
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")

"""A model's tokenizer as files: where they are, whether one can be loaded from them, the rows that its ids index."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vramscope.anatomy import jsonfile
from vramscope.anatomy.bpe import tokenizer_files
from vramscope.anatomy.components import Component, component_of
from vramscope.anatomy.config import FILE_NAME as CONFIG
from vramscope.anatomy.config import stated_vocabulary
from vramscope.anatomy.foreign import missing, what_it_is
from vramscope.anatomy.header import Header
from vramscope.anatomy.hubcache import find_snapshot, is_hub_id
from vramscope.anatomy.recipes import recipe
from vramscope.errors import SourceError

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"

# What transformers 5 builds a tokenizer from where there is no tokenizer.json; every name of a group is needed.
_WHOLE: tuple[tuple[str, ...], ...] = (("vocab.json", "merges.txt"), ("vocab.txt",), ("tekken.json",))
_PIECES = (".model", ".spm")
_RANKS = ".tiktoken"
_RANK_LINE = re.compile(rb"[A-Za-z0-9+/]+=* \d+\r?\n")
_START_BYTES = 1024


def find_tokenizer(source: str, hub_cache: Path, *, revision: str = "main") -> Path:
    """The directory in which the tokenizer of `source` lies: a directory, a weight file's, or a hub snapshot.

    Weights are not asked for. Raises SourceError.
    """
    path = Path(source)
    try:
        if source and "\0" not in source and path.exists():
            return path if path.is_dir() else path.parent
    except OSError as error:  # for example a name too long
        raise SourceError(f"{jsonfile.shown(source)}: {error.strerror or error}") from None
    if is_hub_id(source):
        return find_snapshot(source, revision, hub_cache).directory
    hint = "a source is a directory, ORG/NAME on the hub, or synthetic:NAME"
    raise SourceError(f"{jsonfile.shown(source)}: no such file or directory", hint=hint)


def synthetic_files(name: str) -> dict[str, str]:
    """The small files of the synthetic model `name`, by name: all that a tokenizer needs of it. Raises SourceError."""
    config = dict(recipe(name).config)
    return {CONFIG: json.dumps(config)} | tokenizer_files(config["model_type"], config["max_position_embeddings"])


def optional_config(directory: Path) -> dict[str, Any]:
    """The config.json of a directory, or nothing: a tokenizer may stand alone. Raises SourceError for a damaged one."""
    path = directory / CONFIG
    return jsonfile.read_object(path) if path.exists() or path.is_symlink() else {}


def embedding_rows(config: Mapping[str, Any], headers: Iterable[Header] = ()) -> int | None:
    """How many ids the model has a row for: the config's vocab_size, else the rows of the stored input embedding.

    It is often more than the tokenizer has tokens, padded for the hardware. None where neither says it.
    """
    if (stated := stated_vocabulary(config)) is not None:
        return stated
    stored = (
        tensor.shape[0]
        for header in headers
        for tensor in header.tensors
        if len(tensor.shape) == 2 and component_of(tensor.name) is Component.EMBEDDING and "pos" not in tensor.name  # noqa: PLR2004
    )
    return max(stored, default=None)


def check_tokenizer_files(directory: Path, has_package: Callable[[str], bool]) -> None:
    """Raise SourceError, naming the missing file or package, where the files in `directory` make no tokenizer here.

    transformers' own errors are misleading there: of a sentencepiece model it says that tiktoken is missing.
    """
    try:
        names = sorted(entry.name for entry in directory.iterdir())
    except OSError as error:
        raise SourceError(f"{directory}: {error.strerror or error}") from None
    if TOKENIZER in names:
        _check_content(directory / TOKENIZER)
        return
    if code := _own_code(directory, names):
        raise _unusable(
            directory, f"it is made by code of the model's own ({code}), which vramscope does not run", _CONVERT
        )
    if any(set(group) <= set(names) for group in _WHOLE):
        return
    pieces = [name for name in names if name.endswith((*_PIECES, _RANKS))]
    for name in pieces:
        _check_content(directory / name)
    if pieces:
        _check_package(directory, pieces[0], has_package)
        return
    raise _unusable(directory, _lacking(names), f"fetch {TOKENIZER} from where the model came from")


_CONVERT = f"save {TOKENIZER} with the model's own code, and put it beside the model"


def _check_package(directory: Path, name: str, has_package: Callable[[str], bool]) -> None:
    """Whether what reads this file is installed: tiktoken for lines of base64 and rank, else sentencepiece."""
    with (directory / name).open("rb") as file:
        is_ranks = name.endswith(_RANKS) or bool(_RANK_LINE.match(file.read(_START_BYTES)))
    needed: Sequence[str] = ("tiktoken",) if is_ranks else ("sentencepiece", "google.protobuf")
    if lacking := [package for package in needed if not has_package(package)]:
        named = " and ".join("protobuf" if package == "google.protobuf" else package for package in lacking)
        what = "tiktoken" if is_ranks else "sentencepiece"
        raise _unusable(
            directory,
            f"there is only {name}, a {what} model, and no {TOKENIZER}; to read it, {named} must be installed",
            f"`pip install {named.replace(' and', '')}`, or fetch {TOKENIZER}",
        )


def _check_content(path: Path) -> None:
    """Raise SourceError for a file that only stands for another, or is not there at all."""
    try:
        with path.open("rb") as file:
            start = file.read(_START_BYTES)
    except FileNotFoundError:
        raise missing(path) from None
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from None
    if not start:
        raise SourceError(f"{path}: the file is empty", hint="the download was interrupted; fetch it again")
    foreign = what_it_is(start)
    if foreign and not start.lstrip().startswith(b"{"):
        what = foreign.what.replace(", not safetensors", "").replace(", not the weights", "")
        raise SourceError(f"{path}: {what}, not a tokenizer", hint=foreign.hint)


def _own_code(directory: Path, names: Sequence[str]) -> str:
    """The Python file that a tokenizer of the model's own needs, from `auto_map`; "" where there is none."""
    if TOKENIZER_CONFIG not in names:
        return ""
    mapped = jsonfile.read_object(directory / TOKENIZER_CONFIG).get("auto_map")
    classes = mapped.get("AutoTokenizer") if isinstance(mapped, Mapping) else mapped
    first = next((name for name in classes if isinstance(name, str)), "") if isinstance(classes, list) else classes
    return f"{first.split('--')[-1].split('.')[0]}.py" if isinstance(first, str) and first else ""


def _lacking(names: Sequence[str]) -> str:
    """Which file is missing, as a clause."""
    for group in _WHOLE:
        there = [name for name in group if name in names]
        if there:
            absent = " and ".join(name for name in group if name not in names)
            return f"there is {' and '.join(there)} without {absent}"
    return f"there is no {TOKENIZER}, and no other file that a tokenizer is made from"


def _unusable(directory: Path, reason: str, hint: str) -> SourceError:
    return SourceError(f"{directory}: no tokenizer can be loaded: {reason}", hint=hint)

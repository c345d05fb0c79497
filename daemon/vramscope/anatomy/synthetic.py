"""Makes a checkpoint of a known architecture with random weights, once, in the cache: full size without a download."""

import errno
import fcntl
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from vramscope.anatomy import weights
from vramscope.anatomy.bpe import tokenizer_files
from vramscope.anatomy.components import Component, component_of
from vramscope.anatomy.config import FILE_NAME as CONFIG
from vramscope.anatomy.decoder import DTYPE, ELEMENT_BYTES, TensorPlan
from vramscope.anatomy.header import LENGTH_BYTES, METADATA, Header, TensorEntry
from vramscope.anatomy.recipes import RECIPES, Recipe, recipe
from vramscope.errors import SourceError

__all__ = ["RECIPES", "directory_of", "materialize", "planned_headers"]

Progress = Callable[[int, int], None]
Check = Callable[[], None]

CHUNK_BYTES = 1 << 20
PROGRESS_BYTES = 8 << 20
POOL_BYTES = 8 << 20
_ONE = b"\x80\x3f"  # 1.0 in bfloat16, little endian
_UNFINISHED = ".unfinished"


@dataclass(frozen=True, slots=True)
class _File:
    """One weight file to be: the bytes before the data, and the tensors in file order."""

    name: str
    head: bytes
    tensors: tuple[TensorPlan, ...]

    @property
    def nbytes(self) -> int:
        return len(self.head) + sum(tensor.nbytes for tensor in self.tensors)


def directory_of(name: str, cache: Path) -> Path:
    """Name the directory in which the checkpoint `name` is, or will be; SourceError if there is no such recipe."""
    return cache / f"{name}-v{recipe(name).version}"


def planned_headers(name: str, cache: Path) -> tuple[Header, ...]:
    """Tell the headers that the weight files have, or will have: nothing needs to be written for that."""
    directory = directory_of(name, cache)
    return tuple(_header(file, directory) for file in _files(recipe(name)))


def materialize(name: str, cache: Path, *, progress: Progress, check: Check) -> Path:
    """Make the checkpoint `name` in `cache` unless it is there, and return its directory.

    `progress` hears of bytes done and bytes in total, `check` may raise between two chunks to cancel. What is there is
    whole: it is written under another name and renamed. Raises SourceError where the cache has no room or is read-only.
    """
    made, directory = recipe(name), directory_of(name, cache)
    files = _files(made)
    if directory.is_dir():
        _check_whole(directory, files)
        return directory
    total = sum(file.nbytes for file in files)
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _clean(cache)
        _check_room(cache, total)
        with _workplace(directory) as workplace:
            _write_all(made, workplace, progress, check)
            _publish(workplace, directory)
    except OSError as error:
        raise _no_room(cache, total) if _is_full(error) else _failed(cache, error) from None
    return directory


def _header(file: _File, directory: Path) -> Header:
    end = 0
    entries: list[TensorEntry] = []
    for tensor in file.tensors:
        start, end = end, end + tensor.nbytes
        entries.append(TensorEntry(tensor.name, DTYPE, tensor.shape, start, end, tensor.elements))
    return Header(
        path=directory / file.name,
        tensors=tuple(entries),
        metadata={"format": "pt"},
        data_offset=len(file.head),
        file_bytes=file.nbytes,
    )


def _files(made: Recipe) -> tuple[_File, ...]:
    """Cut the model into files as transformers 5 does: by name, before the tensor that would make a shard too large."""
    shards: list[list[TensorPlan]] = [[]]
    room = made.shard_bytes or made.tensor_bytes
    filled = 0
    for tensor in sorted(made.tensors, key=_natural):
        if shards[-1] and filled + tensor.nbytes > room:
            shards.append([])
            filled = 0
        shards[-1].append(tensor)
        filled += tensor.nbytes
    count = len(shards)
    names = [f"model-{number:05}-of-{count:05}.safetensors" for number in range(1, count + 1)]
    return tuple(_file(name if count > 1 else weights.SINGLE, shard) for name, shard in zip(names, shards, strict=True))


def _natural(tensor: TensorPlan) -> list[tuple[int, str]]:
    """Order names by their parts, numbers by value: layer 10 comes after layer 9."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in tensor.name.split(".")]


def _file(name: str, shard: list[TensorPlan]) -> _File:
    """Lay a file out as the safetensors library does: by name, where all have one dtype; the header padded to 8."""
    tensors = tuple(sorted(shard, key=lambda tensor: tensor.name))
    head: dict[str, object] = {METADATA: {"format": "pt"}}
    end = 0
    for tensor in tensors:
        start, end = end, end + tensor.nbytes
        head[tensor.name] = {"dtype": DTYPE, "shape": tensor.shape, "data_offsets": [start, end]}
    text = json.dumps(head, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return _File(name, len(text).to_bytes(LENGTH_BYTES, "little") + text, tensors)


def _write_all(made: Recipe, directory: Path, progress: Progress, check: Check) -> None:
    files = _files(made)
    report = _Report(progress, check, sum(file.nbytes for file in files))
    pool = memoryview(_pool())
    for file in files:
        with (directory / file.name).open("xb", buffering=0) as opened:
            for chunk in _chunks(made, file, pool):
                _write(opened, chunk)
                report.add(len(chunk))
            os.fsync(opened.fileno())
    texts = {CONFIG: json.dumps(dict(made.config), indent=2) + "\n"}
    texts |= tokenizer_files(made.config["model_type"], made.config["max_position_embeddings"])
    if len(files) > 1:
        texts[weights.INDEX] = _index(made, files)
    for name, text in texts.items():
        with (directory / name).open("xb") as opened:
            opened.write(text.encode())
            opened.flush()
            os.fsync(opened.fileno())
    report.finish()


class _Report:
    """Counts the bytes that are written; asks between two chunks whether to go on."""

    def __init__(self, progress: Progress, check: Check, total: int) -> None:
        self._progress, self._check, self._total = progress, check, total
        self._done = self._told = 0

    def add(self, nbytes: int) -> None:
        self._done += nbytes
        if self._done - self._told >= PROGRESS_BYTES:
            self._told = self._done
            self._progress(self._done, self._total)
        self._check()

    def finish(self) -> None:
        self._progress(self._done, self._total)


def _chunks(made: Recipe, file: _File, pool: memoryview) -> Iterator[bytes | memoryview]:
    """Yield the file's bytes. Every weight is random but the norms, which are 1; the same file each time."""
    yield file.head
    source = random.Random(f"{made.name}/{made.version}/{file.name}")  # noqa: S311 - weights, no secret
    for tensor in file.tensors:
        is_norm = component_of(tensor.name) is Component.NORM
        for start in range(0, tensor.nbytes, CHUNK_BYTES):
            nbytes = min(CHUNK_BYTES, tensor.nbytes - start)
            if is_norm:
                yield _ONE * (nbytes // ELEMENT_BYTES)
            else:
                at = ELEMENT_BYTES * source.randrange((POOL_BYTES - nbytes) // ELEMENT_BYTES)
                yield pool[at : at + nbytes]


def _pool() -> bytes:
    """Make 4 Mi random bfloat16, finite and small: any sign and mantissa, an absolute value in [2^-7, 2^-3).

    The files are cut from this pool at random places: that is several times faster than Python makes random numbers.
    """
    free, fixed = (int.from_bytes(word * (POOL_BYTES // 2), "little") for word in (b"\xff\x81", b"\x00\x3c"))
    bits = random.Random("vramscope").getrandbits(8 * POOL_BYTES)  # noqa: S311 - weights, no secret
    return (bits & free | fixed).to_bytes(POOL_BYTES, "little")


def _write(file: BinaryIO, chunk: bytes | memoryview) -> None:
    left = memoryview(chunk)
    while left:
        left = left[file.write(left) :]


def _index(made: Recipe, files: tuple[_File, ...]) -> str:
    home = {tensor.name: file.name for file in files for tensor in file.tensors}
    metadata = {"total_parameters": made.parameters, "total_size": made.tensor_bytes}
    return json.dumps({"metadata": metadata, "weight_map": home}, indent=2, sort_keys=True) + "\n"


@contextmanager
def _workplace(directory: Path) -> Iterator[Path]:
    """Make a directory beside `directory` to write in, locked while its writer lives and gone when it is done."""
    for _ in range(100):
        path = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", suffix=_UNFINISHED, dir=directory.parent))
        lock = _locked(path)
        if lock is not None:
            break  # else another process took it, in the moment before it was locked, for a dead one's and removed it
    else:
        raise OSError(errno.EBUSY, "every new directory was removed by another process")
    try:
        path.chmod(0o755)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)  # not there any more if it was renamed
        os.close(lock)


def _locked(path: Path) -> int | None:
    """Lock the directory `path`: an open descriptor, or None if another process has it or removed it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(descriptor).st_ino == path.stat().st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _clean(cache: Path) -> None:
    """Remove what dead writers left: nobody holds its lock any more (a process id may be from another container)."""
    for path in cache.glob(f".*-v*{_UNFINISHED}"):
        with suppress(OSError):
            if (lock := _locked(path)) is not None:
                shutil.rmtree(path, ignore_errors=True)
                os.close(lock)


def _publish(workplace: Path, directory: Path) -> None:
    """Give the finished directory its name; if another process was first, its copy is as good, and ours is dropped."""
    _sync(workplace)
    try:
        workplace.rename(directory)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
    _sync(directory.parent)


def _sync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _check_whole(directory: Path, files: tuple[_File, ...]) -> None:
    for file in files:
        path = directory / file.name
        if not path.is_file() or path.stat().st_size != file.nbytes:
            hint = f"delete {directory}, and it is made again"
            raise SourceError(f"{path}: not the {file.nbytes:,} bytes that were written", hint=hint)


def _check_room(cache: Path, total: int) -> None:
    if shutil.disk_usage(cache).free < total:
        raise _no_room(cache, total)


def _is_full(error: OSError) -> bool:
    return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def _no_room(cache: Path, total: int) -> SourceError:
    free = shutil.disk_usage(cache).free
    reason = f"the disk has no room for {total:,} bytes of synthetic weights ({free:,} bytes are free)"
    return SourceError(f"{cache}: {reason}", hint="free some, or choose another cache directory")


def _failed(cache: Path, error: OSError) -> SourceError:
    reason = f"cannot write the synthetic checkpoint: {error.strerror or error}"
    return SourceError(f"{cache}: {reason}", hint="choose a cache directory that can be written")

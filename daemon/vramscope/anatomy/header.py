"""The header of a safetensors file, checked as the reference implementation checks it, before any tensor is read.

A file is 8 bytes with the header's length (unsigned, little endian), the header (JSON), the tensors' data with no gap.
The rules are those of https://github.com/huggingface/safetensors#format and of its Rust code. Stricter here: the header
starts with "{" as that page demands, no key stands twice anywhere, an entry is an object.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from typing import Any, BinaryIO

from vramscope.anatomy import jsonfile
from vramscope.anatomy.foreign import missing, what_it_is
from vramscope.errors import SourceError

HEADER_LIMIT_BYTES = 100_000_000
LENGTH_BYTES = 8
METADATA = "__metadata__"

DTYPE_BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}

_FLOATING = frozenset(name for name in DTYPE_BITS if name.startswith(("F", "BF", "C")))
_COUNT_LIMIT = 2**64  # the reference counts in 64 bits and refuses what does not fit
_FETCH_AGAIN = "the file is damaged; fetch it again"
_WRITER_BROKEN = "the program that wrote the file is at fault; save it again"


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """One tensor of a file. `start` and `end` are bytes from the begin of the data section; `dtype` as in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    end: int
    elements: int

    @property
    def nbytes(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Header:
    """What one safetensors file says about itself. `tensors` are in file order, `data_offset` is where data begins.

    `identity` tells this file from another that comes to stand at its path; None where no file was read.
    """

    path: Path
    tensors: tuple[TensorEntry, ...]
    metadata: dict[str, str]
    data_offset: int
    file_bytes: int
    identity: tuple[int, ...] | None = field(default=None, compare=False, repr=False)

    @property
    def tensor_bytes(self) -> int:
        return self.file_bytes - self.data_offset

    @property
    def elements(self) -> int:
        return sum(tensor.elements for tensor in self.tensors)


def identity_of(status: os.stat_result) -> tuple[int, ...]:
    """What tells a file from another one at the same path."""
    return (status.st_dev, status.st_ino)


def is_floating(dtype: str) -> bool:
    """Whether a dtype of the format holds real or complex numbers, of any width."""
    return dtype in _FLOATING


def read_header(path: Path) -> Header:
    """Read and check the header of the file `path`; SourceError says what the file is or what is wrong with it."""
    try:
        if not S_ISREG(path.stat().st_mode):  # asked before opening: a pipe would wait for its writer
            raise SourceError(f"{path}: not a regular file", hint="give the path of a .safetensors file")
        with path.open("rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            file_bytes = status.st_size
            text = _read_text(file, path, file_bytes)
    except FileNotFoundError:
        raise missing(path) from None
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from None
    tensors, metadata = _parse(text, path)
    data_offset = LENGTH_BYTES + len(text)
    _check_size(path, data_offset + (tensors[-1].end if tensors else 0), file_bytes)
    return Header(
        path=path,
        tensors=tensors,
        metadata=metadata,
        data_offset=data_offset,
        file_bytes=file_bytes,
        identity=identity_of(status),
    )


def _read_text(file: BinaryIO, path: Path, file_bytes: int) -> bytes:
    """Read the header's text; nothing larger than the file or the format's limit is ever asked for."""
    start = file.read(512)
    length = int.from_bytes(start[:LENGTH_BYTES], "little")
    _check_length(path, start, length, file_bytes)
    if LENGTH_BYTES + length > file_bytes:
        reason = f"cut short: the header ends at byte {LENGTH_BYTES + length:,}, the file has {file_bytes:,} bytes"
        raise SourceError(f"{path}: {reason}", hint=_FETCH_AGAIN)
    _check_brace(path, start[LENGTH_BYTES : LENGTH_BYTES + length])
    file.seek(LENGTH_BYTES)
    text = bytearray()
    while len(text) < length and (more := file.read(length - len(text))):
        text += more
    if len(text) < length:
        raise SourceError(f"{path}: cut short while it was read", hint="something else is writing this file")
    return bytes(text)


def _check_length(path: Path, start: bytes, length: int, file_bytes: int) -> None:
    """Refuse what cannot be a header's length; text, read as a number, is far above the limit, so it is named here."""
    if file_bytes == 0:
        hint = "an interrupted download leaves such files; fetch it again"
        raise SourceError(f"{path}: the file is empty", hint=hint)
    if length <= HEADER_LIMIT_BYTES and len(start) >= LENGTH_BYTES:
        return
    if known := what_it_is(start):
        raise SourceError(f"{path}: {known.what}", hint=known.hint)
    if len(start) < LENGTH_BYTES:
        raise SourceError(f"{path}: {file_bytes} bytes are too few for a safetensors file", hint=_FETCH_AGAIN)
    reason = f"the header would be {length:,} bytes long, the format allows {HEADER_LIMIT_BYTES:,}"
    raise SourceError(f"{path}: {reason}", hint="this is no safetensors file, or one with far too many tensors")


def _check_brace(path: Path, text: bytes) -> None:
    """Refuse what begins as no header does, before the rest of it is read."""
    if not text.startswith(b"{"):
        got = repr(text[:20]) if text else "nothing"
        raise SourceError(f'{path}: the header must start with "{{", got {got}', hint=_FETCH_AGAIN)


def _parse(text: bytes, path: Path) -> tuple[tuple[TensorEntry, ...], dict[str, str]]:
    entries = jsonfile.parse(text, path, what="header", unique_keys=True)
    metadata = _metadata(entries.pop(METADATA, None), path)
    tensors = sorted((_entry(name, entry, path) for name, entry in entries.items()), key=lambda t: (t.start, t.end))
    _check_contiguous(tensors, path)
    return tuple(tensors), metadata


def _metadata(value: object, path: Path) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise _wrong(path, METADATA, f"expected an object, got {jsonfile.kind_of(value)}")
    for key, text in value.items():
        if not isinstance(text, str):
            raise _wrong(path, METADATA, f"{key!r}: expected a string, got {jsonfile.kind_of(text)}")
        _check_text(path, key)
        _check_text(path, text)
    return value


def _entry(name: str, entry: object, path: Path) -> TensorEntry:
    _check_text(path, name)
    if not isinstance(entry, dict):
        raise _wrong(path, name, f"expected an object, got {jsonfile.kind_of(entry)}")
    for key in ("dtype", "shape", "data_offsets"):
        if key not in entry:
            raise _wrong(path, name, f'"{key}" is missing')
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPE_BITS:
        raise _wrong(path, name, f'"dtype": expected one of {", ".join(DTYPE_BITS)}; got {jsonfile.shown(dtype)}')
    if not _are_counts(shape):
        raise _wrong(path, name, f'"shape": expected a list of whole numbers from 0, got {jsonfile.shown(shape)}')
    if not _are_counts(offsets) or len(offsets) != 2:  # noqa: PLR2004 - begin and end
        raise _wrong(path, name, f'"data_offsets": expected two whole numbers from 0, got {jsonfile.shown(offsets)}')
    start, end = offsets
    if end < start:
        raise _wrong(path, name, f'"data_offsets": the end {end:,} lies before the begin {start:,}')
    elements = _elements(name, shape, dtype, path)
    _check_span(name, end - start, elements * DTYPE_BITS[dtype], f"{dtype} {shape}", path)
    return TensorEntry(name, dtype, tuple(shape), start, end, elements)


def _are_counts(value: Any) -> bool:
    """Whether a JSON value is a list of numbers that the reference can hold (True is an int to Python, not here)."""
    return isinstance(value, list) and all(type(item) is int and 0 <= item < _COUNT_LIMIT for item in value)


def _elements(name: str, shape: Iterable[int], dtype: str, path: Path) -> int:
    """Multiply the sizes of `shape`; refused where 64 bits cannot count the bits, even if a later size is 0."""
    elements = 1
    for size in shape:
        elements *= size
        if elements >= _COUNT_LIMIT:
            break
    if elements * DTYPE_BITS[dtype] >= _COUNT_LIMIT:
        raise _wrong(path, name, f'"shape": {jsonfile.shown(shape)} is more than any file can hold')
    return elements


def _check_span(name: str, nbytes: int, bits: int, what: str, path: Path) -> None:
    if bits % 8:
        raise _wrong(path, name, f"{what} needs {bits:,} bits, which is no whole number of bytes")
    if nbytes != bits // 8:
        raise _wrong(path, name, f"{what} needs {bits // 8:,} bytes, its offsets span {nbytes:,}")


def _check_contiguous(tensors: Iterable[TensorEntry], path: Path) -> None:
    end = 0
    for tensor in tensors:
        if tensor.start > end:
            raise _wrong(path, tensor.name, f"begins at byte {tensor.start:,}: a hole of {tensor.start - end:,} bytes")
        if tensor.start < end:
            raise _wrong(path, tensor.name, f"begins at byte {tensor.start:,}: overlaps {end - tensor.start:,} bytes")
        end = tensor.end


def _check_size(path: Path, expected: int, actual: int) -> None:
    sizes = f"expected {expected:,} bytes, got {actual:,}"
    if actual < expected:
        raise SourceError(f"{path}: cut short by {expected - actual:,} bytes: {sizes}", hint=_FETCH_AGAIN)
    if actual > expected:
        reason = f"{actual - expected:,} bytes too long, which belong to no tensor: {sizes}"
        raise SourceError(f"{path}: {reason}", hint=_WRITER_BROKEN)


def _check_text(path: Path, text: str) -> None:
    """Refuse half a surrogate pair: a string to Python's json, but no Unicode text and no JSON to others."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise SourceError(f"{path}: the header holds {jsonfile.shown(text)}, which is no Unicode text") from None


def _wrong(path: Path, name: str, reason: str) -> SourceError:
    return SourceError(f"{path}: {name[:200]!r}: {reason}", hint=_WRITER_BROKEN)

"""Which tensors a model has, and in which order they are put on a device.

The worker builds the architecture without memory and tells (loading/skeleton.py); the answer is kept in the cache, so
that a forecast needs torch only once per model, dtype and release of torch and transformers.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from vramscope.anatomy.header import Header

# Part of every key: a change of what an order means must not find what older versions wrote.
FORMAT = 2
FLOATS = {"F64", "F32", "F16", "BF16"}  # what a load converts to the model's dtype


@dataclass(frozen=True, kw_only=True)
class TensorPlace:
    """One tensor that moves: its size on a device, in bytes, and whether a 16-bit dtype would halve it."""

    name: str
    nbytes: int
    is_buffer: bool = False
    halves: bool = False


@dataclass(frozen=True, kw_only=True)
class ModelOrder:
    """The tensors of one model in the order of Module.to(), each tied parameter once.

    `direct` are the indices into `tensors` in the order in which a load straight to a device puts them there. `exact`
    is False where the architecture could not be built and the order is only that of the files; `basis` says so.
    Raises ValueError where `direct` does not have each index once.
    """

    dtype: str
    tensors: tuple[TensorPlace, ...]
    direct: tuple[int, ...]
    exact: bool
    basis: str

    def __post_init__(self) -> None:
        if sorted(self.direct) != list(range(len(self.tensors))):
            raise ValueError(f"direct must have each of {len(self.tensors)} tensors once")

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors)

    @property
    def parameter_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors if not tensor.is_buffer)

    @property
    def buffer_bytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors if tensor.is_buffer)


@cache
def _adapter() -> TypeAdapter[ModelOrder]:
    return TypeAdapter(ModelOrder)


def order_of_files(headers: Sequence[Header], dtype: str, dtype_bytes: int, why: str) -> ModelOrder:
    """The stored tensors in file order, as the best guess for an architecture that cannot be built."""
    tensors = tuple(
        TensorPlace(name=tensor.name, nbytes=tensor.elements * dtype_bytes if tensor.dtype in FLOATS else tensor.nbytes)
        for header in headers
        for tensor in header.tensors
    )
    basis = f"the order is that of the files, since the architecture cannot be built: {why}"
    return ModelOrder(dtype=dtype, tensors=tensors, direct=tuple(range(len(tensors))), exact=False, basis=basis)


# A fact of a load whose files are of another kind than those that the forecast was told of.
SOURCE_CHANGED = "source_changed"


def order_key(config: Mapping[str, Any], headers: Sequence[Header], dtype: str) -> str:
    """What an order depends on, as a hash: config, stored tensors, dtype, and who builds and moves."""
    stored = [(tensor.name, tensor.dtype, tensor.shape) for header in headers for tensor in header.tensors]
    known = [FORMAT, config, stored, dtype, _release("torch"), _release("transformers")]
    return hashlib.sha256(json.dumps(known, sort_keys=True, default=str).encode()).hexdigest()


def _release(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "absent"


class OrderCache:
    """Orders on disk, one file each; what cannot be read counts as not there."""

    def __init__(self, cache: Path) -> None:
        self._directory = cache / "orders"

    def find(self, key: str) -> ModelOrder | None:
        try:
            return _adapter().validate_json((self._directory / f"{key}.json").read_bytes())
        except (OSError, ValidationError):
            return None

    def keep(self, key: str, order: ModelOrder) -> None:
        """Write the order under another name and rename it, so that no reader sees half of it.

        A cache that cannot be written to (full, read-only) keeps nothing, which costs no more than time.
        """
        with contextlib.suppress(OSError):
            self._directory.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=self._directory, suffix=".new")
            new = Path(name)
            try:
                with os.fdopen(descriptor, "w") as file:
                    json.dump(asdict(order), file)
                new.replace(self._directory / f"{key}.json")
            finally:
                new.unlink(missing_ok=True)

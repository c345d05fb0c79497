"""Which stored tensors count as parameters, for how many each stands, and how many bytes it takes once loaded."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from vramscope.anatomy.census import Counted, is_buffer
from vramscope.anatomy.components import Component, component_of
from vramscope.anatomy.decoder import EMBEDDING, HEAD, Comparison, compare, planned_tensors
from vramscope.anatomy.header import TensorEntry, is_floating
from vramscope.anatomy.library import class_facts
from vramscope.anatomy.quantization import Logical, count_logical

_MATRIX = 2
_HEADS = ("lm_head.weight", "embed_out.weight", "predictions.decoder.weight")
_SHARED = ("shared.weight",)
_STACKS = ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
DTYPE_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


@dataclass(frozen=True, kw_only=True)
class Tally:
    """The tensors that count. `comparison` is None where the architecture is not one that is known by heart.

    `tied_twice` are stored second ends of a tie, which count once with the first.
    """

    counted: tuple[Counted, ...]
    buffers: tuple[TensorEntry, ...]
    logical: Logical
    comparison: Comparison | None = None
    tied_twice: tuple[TensorEntry, ...] = ()


def tally(
    tensors: Sequence[TensorEntry], config: Mapping[str, Any], *, tied: bool | None, dtype: str | None, whole: bool
) -> Tally:
    """Count `tensors`; `config` is empty where it is not known, `whole` says whether they are all of the model's.

    `dtype` is that of the load: "" is as stored, None is one that cannot be told.
    """
    of_class = class_facts(config, dtype)
    named = {tensor.name for tensor in tensors if is_buffer(tensor, of_class.buffers)}
    logical = count_logical((tensor for tensor in tensors if tensor.name not in named), config)
    has_only_floats = bool(config) and not logical.method  # what holds whole numbers is a buffer then
    buffers = tuple(t for t in tensors if t.name in named or (has_only_floats and not is_floating(t.dtype)))
    apart = {tensor.name for tensor in buffers}
    others = [tensor for tensor in tensors if tensor.name not in apart]
    planned = planned_tensors(config) if whole and not logical.method else None
    comparison = compare(planned, others, tied=bool(tied)) if planned is not None else None
    twice = () if logical.method else _second_ends(others, tied=bool(tied))
    left_out = {*(comparison.unexpected if comparison else ()), *(tensor.name for tensor in twice)}
    cast = _Cast(dtype="" if logical.method else dtype, kept=of_class.kept)
    counted = _counted((tensor for tensor in others if tensor.name not in left_out), logical, cast)
    if tied and not any(tensor.name == EMBEDDING for tensor in others):
        counted = (_named(tensor, EMBEDDING) if tensor.name == HEAD else tensor for tensor in counted)
    return Tally(counted=tuple(counted), buffers=buffers, logical=logical, comparison=comparison, tied_twice=twice)


def planned(config: Mapping[str, Any], dtype: str) -> Tally | None:
    """Count what a model of this config has; None for an architecture that is not known by heart."""
    if (tensors := planned_tensors(config)) is None:
        return None
    width = DTYPE_BYTES[dtype]
    counted = (Counted(name=t.name, parameters=t.elements, nbytes=t.elements * width) for t in tensors)
    return Tally(counted=tuple(counted), buffers=(), logical=Logical(method="", elements={}))


def _second_ends(tensors: Sequence[TensorEntry], *, tied: bool) -> tuple[TensorEntry, ...]:
    """Stored heads of a tied model that has the embedding, too, and copies of an embedding that two stacks share.

    Only their values, which are not read, tell whether the ends are equal.
    """
    heads = [tensor for tensor in tensors if tied and tensor.name.endswith(_HEADS)]
    copies = [tensor for tensor in tensors if tensor.name.endswith(_STACKS)]
    if not heads and not copies:
        return ()
    matrices = [tensor for tensor in tensors if len(tensor.shape) == _MATRIX]
    shapes = {tensor.shape for tensor in matrices if component_of(tensor.name) is Component.EMBEDDING}
    shared = {tensor.shape for tensor in matrices if tensor.name.endswith(_SHARED)}
    heads = [tensor for tensor in heads if tensor.shape in shapes]
    copies = [tensor for tensor in copies if tensor.shape in shared]
    return (*heads, *copies)


@dataclass(frozen=True, kw_only=True)
class _Cast:
    """What a load makes of floating tensors: "" is nothing, None is not known; what `kept` matches is float32 then."""

    dtype: str | None
    kept: re.Pattern[str] | None

    def nbytes(self, tensor: TensorEntry) -> int | None:
        if self.dtype == "" or not is_floating(tensor.dtype):
            return tensor.nbytes
        if self.dtype is None:
            return None
        dtype = "float32" if self.kept is not None and self.kept.search(tensor.name) else self.dtype
        return tensor.elements * DTYPE_BYTES[dtype]


def _counted(tensors: Iterator[TensorEntry], logical: Logical, cast: _Cast) -> Iterator[Counted]:
    unknown = set(logical.unknown)
    for tensor in tensors:
        parameters = None if tensor.name in unknown else logical.elements.get(tensor.name, 0)
        yield Counted(name=tensor.name, parameters=parameters, nbytes=cast.nbytes(tensor))


def _named(tensor: Counted, name: str) -> Counted:
    return Counted(name=name, parameters=tensor.parameters, nbytes=tensor.nbytes)

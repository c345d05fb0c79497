"""Counts a checkpoint's tensors: by dtype, by part of the model, by layer. What is counted stands in `Counted`."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from vramscope.anatomy.components import component_of
from vramscope.anatomy.header import TensorEntry

# What models keep beside their parameters, by the last part of its name.
_BUFFERS = frozenset(
    {
        *("position_ids", "token_type_ids", "inv_freq", "masked_bias", "num_batches_tracked", "running_mean"),
        *("running_var", "relative_position_index", "causal_mask"),
    }
)
_INDEX_DIGITS = 6


@dataclass(frozen=True, kw_only=True, slots=True)
class Counted:
    """One stored tensor as it counts: what it stands for, and the bytes that it takes once loaded.

    `parameters` is 0 for what stands beside a packed weight; either is None where it cannot be told. `name` is the one
    that the model has for it, which may be another than in the file.
    """

    name: str
    parameters: int | None
    nbytes: int | None


@dataclass(frozen=True, kw_only=True)
class Share:
    """A part of the whole, or the whole. A number is None where it cannot be told of one of the tensors."""

    parameters: int | None
    nbytes: int | None


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Tensors as they are stored."""

    tensors: int
    elements: int
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class LayerRun:
    """Consecutive layers of one stack, such as model.layers 0 to 23; `each` is what every one of them has."""

    stack: str
    first: int
    last: int
    each: Share

    @property
    def layers(self) -> int:
        return self.last - self.first + 1


def is_buffer(tensor: TensorEntry, known: Collection[str] = ()) -> bool:
    """Whether a stored tensor is by its name none of the model's parameters, such as a causal mask of GPT-2.

    `known` are more names of the model's own.
    """
    leaf = tensor.name.rpartition(".")[2]
    is_mask = leaf == "bias" and len(tensor.shape) == 4 and tensor.shape[:2] == (1, 1)  # noqa: PLR2004 - one a pair
    return leaf in _BUFFERS or leaf in known or is_mask


def by_dtype(tensors: Iterable[TensorEntry]) -> dict[str, Stored]:
    """Count what is stored, the most bytes first."""
    groups: dict[str, list[TensorEntry]] = {}
    for tensor in tensors:
        groups.setdefault(tensor.dtype, []).append(tensor)
    stored = {dtype: stored_in(group) for dtype, group in groups.items()}
    return dict(sorted(stored.items(), key=lambda item: -item[1].nbytes))


def stored_in(tensors: Sequence[TensorEntry]) -> Stored:
    """Add up tensors as they are stored."""
    return Stored(
        tensors=len(tensors),
        elements=sum(tensor.elements for tensor in tensors),
        nbytes=sum(tensor.nbytes for tensor in tensors),
    )


def total(counted: Iterable[Counted]) -> Share:
    """Add up what counts."""
    parameters: int | None = 0
    nbytes: int | None = 0
    for tensor in counted:
        parameters = None if parameters is None or tensor.parameters is None else parameters + tensor.parameters
        nbytes = None if nbytes is None or tensor.nbytes is None else nbytes + tensor.nbytes
    return Share(parameters=parameters, nbytes=nbytes)


def by_component(counted: Iterable[Counted]) -> dict[str, Share]:
    """Add up by the part of the model, in the order of the parts' names."""
    groups: dict[str, list[Counted]] = {}
    for tensor in counted:
        groups.setdefault(component_of(tensor.name), []).append(tensor)
    return {str(component): total(group) for component, group in sorted(groups.items())}


def by_layer(counted: Iterable[Counted]) -> tuple[LayerRun, ...]:
    """Add up by layer; layers of one stack that follow each other and are alike are one run."""
    layers: dict[tuple[str, int], list[Counted]] = {}
    for tensor in counted:
        if (place := layer_of(tensor.name)) is not None:
            layers.setdefault(place, []).append(tensor)
    shares = [(stack, index, total(group)) for (stack, index), group in sorted(layers.items())]
    return tuple(_runs(shares))


def layer_of(name: str) -> tuple[str, int] | None:
    """Split a name at its first number: what the stack is called, and which layer of it; None outside of any."""
    parts = name.split(".")
    for position, part in enumerate(parts):
        if part.isascii() and part.isdigit() and len(part) <= _INDEX_DIGITS and position:
            return ".".join(parts[:position]), int(part)
    return None


def _runs(shares: Sequence[tuple[str, int, Share]]) -> Iterator[LayerRun]:
    numbered = enumerate(shares)
    for (stack, _, each), group in groupby(numbered, key=lambda item: (item[1][0], item[1][1] - item[0], item[1][2])):
        indices = [index for _, (_, index, _) in group]
        yield LayerRun(stack=stack, first=indices[0], last=indices[-1], each=each)

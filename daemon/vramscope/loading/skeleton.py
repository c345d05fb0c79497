"""A model without memory: which tensors it has, in which dtype each will be, and in which order they move."""

import copy
import re
from collections.abc import Sequence
from functools import cached_property

import torch
from torch import nn
from transformers.initialization import no_init_weights

from vramscope.anatomy.header import Header, TensorEntry
from vramscope.errors import SourceError, reason_of
from vramscope.forecast.order import ModelOrder, TensorPlace
from vramscope.loading.assemble import REFUSALS, Architecture, paused_collection
from vramscope.loading.dtypes import TORCH_DTYPES
from vramscope.loading.order import Slot, slots


class Skeleton:
    """An architecture built on meta in one dtype, tied as it will be.

    Raises SourceError for a config of which no model can be built.
    """

    def __init__(self, architecture: Architecture, dtype: torch.dtype) -> None:
        self.dtype = dtype
        try:
            with torch.device("meta"), no_init_weights(), paused_collection():
                config = copy.deepcopy(architecture.config)
                self.module: nn.Module = architecture.model_class._from_config(config, dtype=dtype)  # noqa: SLF001
            self.module.tie_weights()
        except REFUSALS as error:
            raise SourceError(f"config.json: {architecture.name} cannot be built from it: {reason_of(error)}") from None
        self._kept = self._float32_pattern(dtype)

    def dtype_of(self, name: str) -> torch.dtype | None:
        """The dtype in which a parameter or buffer will be; None for a name that the model does not have.

        Some classes keep some of their parameters in float32 when they are loaded in 16 bits (transformers'
        _keep_in_fp32_modules); parts of a model may insist on a dtype of their own.
        """
        tensor = self.tensors.get(name)
        if tensor is None:
            return None
        if self._kept is not None and tensor.is_floating_point() and self._kept.search(name):
            return torch.float32
        return tensor.dtype

    def wanted(self, entry: TensorEntry) -> torch.dtype:
        """The dtype in which to read a stored tensor: its final one, or as stored where transformers converts it."""
        stored = TORCH_DTYPES.get(entry.dtype, self.dtype)
        if not stored.is_floating_point:
            return stored
        if (final := self.dtype_of(entry.name)) is not None:
            return final if final.is_floating_point else stored
        return self.dtype if self._kept is None else stored

    def is_plain(self, headers: Sequence[Header]) -> bool:
        """Whether every parameter is one stored tensor as it is, so that nothing is computed while loading.

        A model whose files hold both ends of a tie is not plain: transformers compares the two. Neither is one with a
        bias beside a tied weight: transformers pads it to the weight's rows, into a new tensor (_adjust_bias).
        """
        stored = {tensor.name: tensor for header in headers for tensor in header.tensors}
        if any(self._has_bias_beside(name) for names in self._aliases.values() if len(names) > 1 for name in names):
            return False
        for slot in self.slots:
            found = [name for name in self._names_of(slot) if name in stored]
            if len(found) > 1 or (not slot.is_buffer and not found):
                return False
            if found and not self._fits(stored[found[0]], slot):
                return False
        return True

    def order(self, headers: Sequence[Header]) -> ModelOrder:
        """The tensors as they move, and as a load straight to a device puts them there."""
        tensors = tuple(self._place(slot) for slot in self.slots)
        stored = {tensor.name for header in headers for tensor in header.tensors}
        ties = [slot.name for slot in self.slots if len(set(self._names_of(slot)) & stored) > 1]
        basis = f"the files hold both ends of a tie ({ties[0]}), which counts once if they are equal" if ties else ""
        return ModelOrder(
            dtype=str(self.dtype).removeprefix("torch."),
            tensors=tensors,
            direct=self._direct(headers),
            exact=not ties,
            basis=basis,
        )

    def _direct(self, headers: Sequence[Header]) -> tuple[int, ...]:
        """Stored tensors in file order, then the others as they move; a model that is not plain moves as a whole."""
        indices = range(len(self.slots))
        if headers and not self.is_plain(headers):
            return tuple(indices)
        position = {name: index for index in indices for name in self._names_of(self.slots[index])}
        in_files = [position[tensor.name] for header in headers for tensor in header.tensors if tensor.name in position]
        return tuple(dict.fromkeys([*in_files, *indices]))

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """What moves, in the order in which it moves."""
        return slots(self.module)

    @cached_property
    def tensors(self) -> dict[str, torch.Tensor]:
        """Every parameter and buffer on meta, under each of its names."""
        named = dict(self.module.named_parameters(remove_duplicate=False))
        return {**named, **dict(self.module.named_buffers(remove_duplicate=False))}

    @cached_property
    def _aliases(self) -> dict[int, list[str]]:
        found: dict[int, list[str]] = {}
        for name, tensor in self.tensors.items():
            found.setdefault(id(tensor), []).append(name)
        return found

    def _fits(self, entry: TensorEntry, slot: Slot) -> bool:
        return entry.shape == tuple(slot.tensor.shape) and self.wanted(entry) == self.dtype_of(entry.name)

    def _has_bias_beside(self, name: str) -> bool:
        owner, _, key = name.rpartition(".")
        return key == "weight" and self.tensors.get(f"{owner}.bias") is not None

    def _names_of(self, slot: Slot) -> list[str]:
        """All names of a tied parameter; a buffer has one for each place."""
        return [slot.name] if slot.is_buffer else self._aliases[id(self.tensors[slot.name])]

    def _place(self, slot: Slot) -> TensorPlace:
        dtype = self.dtype_of(slot.name) or slot.tensor.dtype
        return TensorPlace(
            name=slot.name,
            nbytes=slot.tensor.numel() * dtype.itemsize,
            is_buffer=slot.is_buffer,
            halves=dtype is torch.float32 and not slot.is_buffer and not self._stays_float32(slot.name),
        )

    def _stays_float32(self, name: str) -> bool:
        return self._kept_in_16_bits is not None and bool(self._kept_in_16_bits.search(name))

    @cached_property
    def _kept_in_16_bits(self) -> re.Pattern[str] | None:
        return self._float32_pattern(torch.float16)

    def _float32_pattern(self, dtype: torch.dtype) -> re.Pattern[str] | None:
        """Which names stay float32 in a model that is loaded in `dtype`."""
        kept: set[str] = set()
        if dtype is torch.float16:
            kept |= set(getattr(self.module, "_keep_in_fp32_modules", None) or ())
        if dtype in (torch.float16, torch.bfloat16):
            kept |= set(getattr(self.module, "_keep_in_fp32_modules_strict", None) or ())
        return re.compile("|".join(part.replace("*", ".*") for part in sorted(kept))) if kept else None

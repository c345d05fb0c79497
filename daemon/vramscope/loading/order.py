"""Which tensors a model moves, and in which order: that of torch.nn.Module.to()."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn


@dataclass(frozen=True, eq=False)
class Slot:
    """One place in a module that holds a tensor. A parameter that sits in several places (tied) is one slot."""

    name: str
    owner: nn.Module
    key: str
    is_buffer: bool

    @property
    def tensor(self) -> torch.Tensor:
        held = self.owner._buffers[self.key] if self.is_buffer else self.owner._parameters[self.key]  # noqa: SLF001
        if held is None:
            raise KeyError(f"{self.name} holds no tensor any more")
        return held.data

    def assign(self, tensor: torch.Tensor) -> None:
        """Put `tensor` in the place; a parameter object stays the same, so what was tied stays tied."""
        if self.is_buffer:
            self.owner._buffers[self.key] = tensor  # noqa: SLF001
        else:
            parameter = self.owner._parameters[self.key]  # noqa: SLF001
            if parameter is None:
                raise KeyError(f"{self.name} holds no tensor any more")
            parameter.data = tensor


def slots(module: nn.Module) -> tuple[Slot, ...]:
    """Every slot in Module.to()'s order: children first, then own parameters, then own buffers.

    As in Module._apply (torch/nn/modules/module.py), a parameter met again is not moved again, and a buffer is: after
    a move, buffers that were shared no longer are. A module met again has nothing left that is not moved yet.
    """
    return tuple(_walk(module, "", set()))


def _walk(module: nn.Module, prefix: str, seen: set[int]) -> Iterator[Slot]:
    if id(module) in seen:
        return
    seen.add(id(module))
    for name, child in module._modules.items():  # noqa: SLF001
        if child is not None:
            yield from _walk(child, f"{prefix}{name}.", seen)
    for key, parameter in module._parameters.items():  # noqa: SLF001
        if parameter is not None and id(parameter) not in seen:
            seen.add(id(parameter))
            yield Slot(prefix + key, module, key, is_buffer=False)
    for key, buffer in module._buffers.items():  # noqa: SLF001
        if buffer is not None and id(buffer) not in seen:  # a parameter may be registered as a buffer, too
            yield Slot(prefix + key, module, key, is_buffer=True)

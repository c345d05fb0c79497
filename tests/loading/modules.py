"""Small modules in which tensors hang together in every way that torch allows."""

from collections.abc import Callable, Mapping

import torch
from torch import nn

from vramscope.loading.resident import ModelIdentity

IDENTITY = ModelIdentity(
    model="m",
    architecture="Bag",
    dtype="float32",
    quantization="",
    revision="",
    file_bytes=100,
    file_elements=25,
    context_window_tokens=None,
)


class Bag(nn.Module):
    """A module of whatever it is given: parameters, modules, and as buffers plain tensors or None."""

    def __init__(self, **parts: nn.Module | nn.Parameter | torch.Tensor | None) -> None:
        super().__init__()
        for name, part in parts.items():
            if isinstance(part, nn.Module | nn.Parameter):
                setattr(self, name, part)
            else:
                self.register_buffer(name, part)


def parameter(*shape: int) -> nn.Parameter:
    return nn.Parameter(torch.randn(shape), requires_grad=False)


def _nested() -> nn.Module:
    def block() -> nn.Module:
        return Bag(norm=nn.BatchNorm1d(4), inner=nn.Linear(4, 3), scale=parameter(2), mask=torch.ones(5))

    blocks = nn.ModuleList([block(), block()])
    return Bag(own=parameter(7), table=torch.ones(6), blocks=blocks, head=nn.Linear(3, 2, bias=False))


def _tied() -> nn.Module:
    weight = parameter(6, 4)
    return Bag(first=Bag(weight=weight), second=Bag(other=parameter(3), weight=weight), weight=weight)


def _views() -> nn.Module:
    storage = torch.randn(20)
    views = [nn.Parameter(storage[first : first + 8], requires_grad=False) for first in (0, 4, 12)]
    return Bag(a=views[0], b=Bag(v=views[1], w=storage[2:6]), c=views[2], whole=storage)


def _shared_buffer() -> nn.Module:
    table = torch.randn(9)
    return Bag(first=Bag(table=table), second=Bag(table=table), table=table)


def _shared_module() -> nn.Module:
    """One module under two names of one parent, and under another parent."""
    shared = Bag(weight=parameter(4), table=torch.randn(3))
    return Bag(first=shared, again=shared, other=Bag(deep=shared, own=parameter(2)))


def _none() -> nn.Module:
    module = Bag(weight=parameter(4), empty=None, zero=torch.empty(0, 3), scalar=torch.tensor(1.0))
    module.register_parameter("absent", None)
    module.register_module("nothing", None)
    return module


def _parameter_as_buffer() -> nn.Module:
    weight = parameter(5)
    before, after = Bag(), Bag(own=parameter(2))
    before._buffers["weight"] = after._buffers["weight"] = weight
    return Bag(before=before, weight=Bag(weight=weight), after=after)


def _unlike_dtypes() -> nn.Module:
    return Bag(halves=nn.Parameter(torch.randn(3).half()), integers=torch.arange(5), flags=torch.tensor([True, False]))


MODULES: Mapping[str, Callable[[], nn.Module]] = {
    "nested": _nested,
    "tied": _tied,
    "views of one storage": _views,
    "shared buffer": _shared_buffer,
    "shared module": _shared_module,
    "none and empty": _none,
    "parameter registered as a buffer": _parameter_as_buffer,
    "unlike dtypes": _unlike_dtypes,
    "recurrent": lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True),
    "empty": Bag,
}

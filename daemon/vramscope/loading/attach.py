"""Makes a model of a skeleton and tensors that were read, without transformers' loader, where that changes nothing.

The loader builds the model a second time and looks at every tensor by name in Python, which takes as long as reading
half a gigabyte. It is left out only where all that it would do is known: each stored tensor is one parameter or buffer
under its own name and in its own shape, and the model's class changes nothing about how transformers loads.
"""

import itertools
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key

from vramscope.loading.assemble import REFUSALS, paused_collection
from vramscope.loading.skeleton import Skeleton

Tensor = TypeVar("Tensor", bound=torch.Tensor)

# What transformers' from_pretrained calls on the model and its class. Whoever changes one of these is left to it.
LOADING = (
    "from_pretrained",
    "get_init_context",
    "initialize_weights",
    "mark_tied_weights_as_initialized",
    "tie_weights",
    "_adjust_bias",
    "_finalize_model_loading",
    "_initialize_missing_keys",
    "_initialize_weights",
    "_load_pretrained_model",
    "_move_missing_keys_from_meta_to_device",
)
# What a config may ask for that happens while transformers loads.
ASKED_IN_CONFIG = ("quantization_config", "fusion_config", "distributed_config")


def attach(skeleton: Skeleton, weights: Mapping[str, torch.Tensor]) -> nn.Module | None:
    """The model over `weights`, in evaluation mode; None where transformers' own loader has to make it.

    `weights` must be plain for the skeleton (is_plain). The model is the skeleton's own module, which is used up.
    """
    module: Any = skeleton.module
    if not _is_loaded_as_usual(module) or not _keeps_names(module, weights):
        return None
    try:
        with paused_collection(), torch.no_grad():
            _place(module, {id(skeleton.tensors[name]): tensor for name, tensor in weights.items()})
            module.initialize_weights()  # skips what was placed, and computes the buffers that no file holds
            module.eval()
    except REFUSALS:
        return None
    held = itertools.chain(module.parameters(), module.buffers())
    return None if any(tensor.is_meta for tensor in held) else module


def _is_loaded_as_usual(module: Any) -> bool:
    kinds = type(module).__mro__
    owners = (next((kind for kind in kinds if name in vars(kind)), PreTrainedModel) for name in LOADING)
    return (
        not module.is_custom_code()
        and all(issubclass(PreTrainedModel, owner) for owner in owners)
        and not any(getattr(module.config, name, None) for name in ASKED_IN_CONFIG)
    )


def _keeps_names(module: Any, names: Iterable[str]) -> bool:
    """Whether the loader would put each stored tensor under its own name, as it is."""
    expected = module.state_dict()
    changes = get_model_conversion_mapping(module)
    renamings = [change for change in changes if isinstance(change, WeightRenaming)]
    converters = [change for change in changes if isinstance(change, WeightConverter)]
    prefix = module.base_model_prefix
    return all(
        name in expected and rename_source_key(name, renamings, converters, prefix, expected) == (name, None)
        for name in names
    )


def _place(module: nn.Module, found: Mapping[int, torch.Tensor]) -> None:
    """Put tensors where those on meta with these ids are, and room for each buffer that is never stored."""
    made: dict[int, nn.Parameter] = {}
    for part in module.modules():
        for key, held in part._parameters.items():  # noqa: SLF001
            if held is not None and id(held) in found:
                if id(held) not in made:
                    made[id(held)] = _marked(nn.Parameter(found[id(held)], requires_grad=False))
                part._parameters[key] = made[id(held)]  # noqa: SLF001
        for key, buffer in part._buffers.items():  # noqa: SLF001
            if buffer is None:
                continue
            if key in part._non_persistent_buffers_set:  # noqa: SLF001
                part._buffers[key] = torch.empty_like(buffer, device="cpu")  # noqa: SLF001
            elif id(buffer) in found:
                part._buffers[key] = _marked(found[id(buffer)])  # noqa: SLF001


def _marked(tensor: Tensor) -> Tensor:
    """Tell transformers' initialisation that this tensor has its values."""
    tensor._is_hf_initialized = True  # type: ignore[attr-defined]  # noqa: SLF001
    return tensor

"""Models that are made without transformers' own loader: which, and that nothing tells them apart from others."""

import pytest
import torch
from tests.devices.contract import same_bits
from tests.loading.checkpoints import ARCHITECTURES, resolve_directory
from tests.loading.files import read_weights
from tests.loading.monitor import RecordingMonitor

from vramscope.loading import loader
from vramscope.loading.assemble import Architecture, assemble, find_architecture
from vramscope.loading.attach import attach
from vramscope.loading.skeleton import Skeleton

# Renamed, fused or computed while they are loaded.
CHANGED = {"bert", "llava", "mixtral", "qwen2-moe", "vit"}


def made(directory, dtype=torch.float16, change=None):
    """What transformers' loader makes of a checkpoint, and what attaching does."""
    checkpoint = resolve_directory(directory)
    architecture = find_architecture(checkpoint.directory, checkpoint.config)
    if change:
        architecture = Architecture(model_class=change(architecture.model_class), config=architecture.config)
    skeleton = Skeleton(architecture, dtype)
    weights = read_weights(checkpoint.tensors, skeleton.wanted, RecordingMonitor())
    return assemble(architecture, weights, dtype)[0], attach(skeleton, weights)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_plain_models_are_attached_and_others_are_not(checkpoints, name):
    loaded = loader.load(resolve_directory(checkpoints(name)), torch.float16, RecordingMonitor())
    assert loaded.attached == (name not in CHANGED)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", sorted(ARCHITECTURES.keys() - CHANGED))
def test_an_attached_model_is_the_one_that_the_loader_makes(checkpoints, name, dtype):
    expected, found = made(checkpoints(name), dtype)
    assert [(place, type(module)) for place, module in found.named_modules()] == [
        (place, type(module)) for place, module in expected.named_modules()
    ]
    for kind in ("named_parameters", "named_buffers"):
        ours, theirs = (dict(getattr(model, kind)(remove_duplicate=False)) for model in (found, expected))
        assert list(ours) == list(theirs)
        assert [place for place in ours if not same_bits(ours[place], theirs[place])] == []
        assert not any(tensor.requires_grad for tensor in ours.values())
    assert found.state_dict().keys() == expected.state_dict().keys()
    assert not any(module.training for module in found.modules())
    found.config.name_or_path = expected.config.name_or_path  # the loader was given none
    assert found.config.to_dict() == expected.config.to_dict()


def _ties_otherwise(model_class):
    class Other(model_class):
        def tie_weights(self, *arguments, **options):
            super().tie_weights(*arguments, **options)

    return _of_transformers(Other)


def _finishes_otherwise(model_class):
    class Other(model_class):
        @staticmethod
        def _finalize_model_loading(*arguments):
            return model_class._finalize_model_loading(*arguments)

    return _of_transformers(Other)


def _of_a_stranger(model_class):
    return type("Other", (model_class,), {"__module__": "stranger"})


def _of_transformers(model_class):
    model_class.__module__ = "transformers.models.other"
    return model_class


@pytest.mark.parametrize("change", [_ties_otherwise, _finishes_otherwise, _of_a_stranger])
def test_a_class_that_may_load_in_its_own_way_is_left_to_the_loader(checkpoints, change):
    expected, found = made(checkpoints("llama"), change=change)
    assert expected is not None
    assert found is None


def test_a_subclass_that_changes_nothing_is_attached(checkpoints):
    _, found = made(checkpoints("llama"), change=lambda each: _of_transformers(type("Other", (each,), {})))
    assert found is not None


def test_a_config_that_asks_for_more_is_left_to_the_loader(checkpoints):
    checkpoint = resolve_directory(checkpoints("llama"))
    architecture = find_architecture(checkpoint.directory, checkpoint.config)
    architecture.config.fusion_config = {"patch_embeddings": True}
    skeleton = Skeleton(architecture, torch.float16)
    assert attach(skeleton, read_weights(checkpoint.tensors, skeleton.wanted, RecordingMonitor())) is None


@pytest.mark.parametrize("extra", ["model.rotary_emb.inv_freq", "model.layers.0.self_attn.rotary_emb.inv_freq", "x"])
def test_a_tensor_that_is_no_stored_part_of_the_model_is_left_to_the_loader(checkpoints, extra):
    checkpoint = resolve_directory(checkpoints("llama"))
    skeleton = Skeleton(find_architecture(checkpoint.directory, checkpoint.config), torch.float16)
    weights = read_weights(checkpoint.tensors, skeleton.wanted, RecordingMonitor())
    assert attach(skeleton, weights | {extra: torch.ones(4)}) is None
    assert attach(skeleton, weights) is not None


@pytest.mark.parametrize(("name", "how"), [("llama", "attached"), ("mixtral", "by_transformers")])
def test_a_load_tells_how_it_came_about(checkpoints, name, how):
    loaded = loader.load(resolve_directory(checkpoints(name)), torch.float16, RecordingMonitor())
    assert loaded.facts["assembled"] == how
    assert loaded.facts["reading"] == "cached"  # it was just written
    assert loaded.reading.cached_share == 1.0

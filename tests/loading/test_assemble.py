"""The assembled model against what from_pretrained makes of the same files."""

import warnings

import pytest
import torch
from tests.devices.contract import same_bits
from tests.loading.checkpoints import ARCHITECTURES, load, resolve_directory

from vramscope.loading.assemble import find_architecture

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def places(module):
    """Every parameter and buffer, one a place: a tied one comes up under each of its names."""
    return dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))


def reference(checkpoint, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model_class = find_architecture(checkpoint.directory, checkpoint.config).model_class
        return model_class.from_pretrained(checkpoint.directory, dtype=dtype)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_every_parameter_and_buffer_is_what_from_pretrained_makes_it(checkpoints, name, wanted):
    checkpoint = resolve_directory(checkpoints(name))
    model, unexpected = load(checkpoint, wanted)
    expected = reference(checkpoint, wanted)
    ours, theirs = places(model), places(expected)
    assert type(model) is type(expected)
    assert list(ours) == list(theirs)
    assert [place for place in ours if not same_bits(ours[place], theirs[place])] == []
    assert unexpected == ()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_model_is_whole_and_only_for_inference(checkpoints, name):
    model, _ = load(resolve_directory(checkpoints(name)), torch.float16)
    assert [place for place, tensor in places(model).items() if tensor.device.type != "cpu"] == []
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert not any(module.training for module in model.modules())


@pytest.mark.parametrize("name", ["falcon", "gpt2", "llama", "opt", "phi", "qwen2"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_parameters_are_the_read_bytes_themselves(checkpoints, name, dtype):
    model, _ = load(resolve_directory(checkpoints(name)), dtype)
    assert len({parameter.untyped_storage().data_ptr() for parameter in model.parameters()}) == 1


def test_weights_that_are_tied_stay_tied(checkpoints):
    qwen2, _ = load(resolve_directory(checkpoints("qwen2")), torch.float16)
    assert qwen2.lm_head.weight is qwen2.model.embed_tokens.weight
    t5, _ = load(resolve_directory(checkpoints("t5")), torch.float16)
    assert t5.encoder.embed_tokens.weight is t5.decoder.embed_tokens.weight is t5.shared.weight
    llama, _ = load(resolve_directory(checkpoints("llama")), torch.float16)
    assert llama.lm_head.weight is not llama.model.embed_tokens.weight


def test_what_transformers_keeps_in_float32_stays_so(checkpoints):
    model, _ = load(resolve_directory(checkpoints("t5")), torch.float16)
    kept = {name.split(".")[-2] for name, tensor in model.named_parameters() if tensor.dtype is torch.float32}
    assert kept == {"wo"}


def test_a_model_computes_what_from_pretrained_computes(checkpoints):
    checkpoint = resolve_directory(checkpoints("qwen2"))
    tokens = torch.arange(10).unsqueeze(0)
    model, _ = load(checkpoint, torch.float32)
    with torch.no_grad():
        assert same_bits(model(tokens).logits, reference(checkpoint, torch.float32)(tokens).logits)

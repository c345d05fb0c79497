"""What a model will be, told before anything is read."""

import pytest
import torch
from safetensors.torch import save_file
from tests.loading.checkpoints import ARCHITECTURES, load, resolve_directory

from vramscope.anatomy.header import read_header
from vramscope.loading.assemble import find_architecture
from vramscope.loading.order import slots
from vramscope.loading.skeleton import Skeleton

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def skeleton(checkpoint, dtype=torch.float16):
    return Skeleton(find_architecture(checkpoint.directory, checkpoint.config), dtype)


@pytest.fixture
def qwen2(checkpoints):
    return resolve_directory(checkpoints("qwen2"))


@pytest.fixture
def stored(tmp_path):
    """The header of a file that holds some tensors."""

    def header(**tensors):
        save_file({name.replace("__", "."): tensor for name, tensor in tensors.items()}, tmp_path / "model.safetensors")
        return read_header(tmp_path / "model.safetensors")

    return header


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_the_order_foretells_every_tensor_of_the_loaded_model(checkpoints, name, dtype):
    checkpoint = resolve_directory(checkpoints(name))
    order = skeleton(checkpoint, dtype).order(checkpoint.headers)
    model, _ = load(checkpoint, dtype)
    assert [(tensor.name, tensor.nbytes, tensor.is_buffer) for tensor in order.tensors] == [
        (slot.name, slot.tensor.nbytes, slot.is_buffer) for slot in slots(model)
    ]
    assert sorted(order.direct) == list(range(len(order.tensors)))
    assert order.exact


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_model_in_float32_tells_which_of_its_parameters_float16_would_halve(checkpoints, name):
    checkpoint = resolve_directory(checkpoints(name))
    wide, half = (skeleton(checkpoint, dtype).order(checkpoint.headers) for dtype in (torch.float32, torch.float16))
    halved = [tensor.nbytes // 2 if tensor.halves else tensor.nbytes for tensor in wide.tensors]
    for foretold, tensor in zip(halved, half.tensors, strict=True):
        assert tensor.is_buffer or foretold == tensor.nbytes, tensor.name
    assert not any(tensor.halves for tensor in half.tensors)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_dtypes_are_those_of_the_loaded_model(checkpoints, name):
    checkpoint = resolve_directory(checkpoints(name))
    expected = skeleton(checkpoint)
    for slot in slots(load(checkpoint, torch.float16)[0]):
        assert expected.dtype_of(slot.name) is slot.tensor.dtype, slot.name


def test_a_name_that_the_model_has_not_has_no_dtype(qwen2):
    assert skeleton(qwen2).dtype_of("nonsense") is None


def test_floats_are_read_in_the_dtype_of_the_model_and_whole_numbers_as_they_are(qwen2, stored):
    header = stored(model__norm__weight=torch.ones(32), other=torch.ones(3), numbers=torch.arange(3))
    wanted = {entry.name: skeleton(qwen2).wanted(entry) for entry in header.tensors}
    assert wanted == {"model.norm.weight": torch.float16, "other": torch.float16, "numbers": torch.int64}


def test_what_stays_in_float32_is_read_in_float32(checkpoints):
    t5 = resolve_directory(checkpoints("t5"))
    wanted = {entry.name: skeleton(t5).wanted(entry) for _, entry in t5.tensors}
    assert {name for name, dtype in wanted.items() if dtype is torch.float32} == {
        name for name in wanted if name.endswith("wo.weight")
    }


@pytest.mark.parametrize("name", ["falcon", "gpt2", "llama", "qwen2", "t5"])
def test_a_model_whose_parameters_are_stored_tensors_is_plain(checkpoints, name):
    checkpoint = resolve_directory(checkpoints(name))
    assert skeleton(checkpoint).is_plain(checkpoint.headers)


@pytest.mark.parametrize("name", ["bert", "mixtral", "vit"])
def test_a_model_whose_weights_are_computed_or_renamed_is_not_plain(checkpoints, name):
    checkpoint = resolve_directory(checkpoints(name))
    assert not skeleton(checkpoint).is_plain(checkpoint.headers)


@pytest.mark.parametrize(
    "norm", [torch.ones(33), torch.arange(32)], ids=["another shape", "whole numbers for a parameter of floats"]
)
def test_a_model_with_a_tensor_that_does_not_fit_is_not_plain(qwen2, norm, tmp_path):
    checkpoint = with_tensor(qwen2, tmp_path, "model.norm.weight", norm)
    assert not skeleton(checkpoint).is_plain(checkpoint.headers)


def test_files_with_both_ends_of_a_tie_are_not_plain_and_not_foretold_exactly(qwen2, tmp_path):
    checkpoint = with_tensor(qwen2, tmp_path, "lm_head.weight", torch.ones(96, 32))
    assert not skeleton(checkpoint).is_plain(checkpoint.headers)
    order = skeleton(checkpoint).order(checkpoint.headers)
    assert not order.exact
    assert "both ends of a tie (model.embed_tokens.weight)" in order.basis


def with_tensor(checkpoint, directory, name, tensor):
    """The checkpoint, copied, with one tensor put in."""
    tensors = {entry.name: torch.zeros(entry.shape, dtype=torch.bfloat16) for _, entry in checkpoint.tensors}
    save_file(tensors | {name: tensor}, directory / "model.safetensors")
    (directory / "config.json").write_text((checkpoint.directory / "config.json").read_text())
    return resolve_directory(directory)

"""Loading a whole checkpoint: to the host, and straight to a device."""

import os

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.devices.contract import same_bits
from tests.loading.checkpoints import ARCHITECTURES, load, resolve_directory, save_checkpoint
from tests.loading.copying import MIB, CopyingDevice
from tests.loading.files import descriptors, reading_threads
from tests.loading.late import LateDevice
from tests.loading.modules import IDENTITY
from tests.loading.monitor import RecordingMonitor

from vramscope.devices.simulated import SimulatedCard, SimulatedDevice
from vramscope.errors import OutOfMemoryError, SourceError, StepCancelledError, StepError
from vramscope.loading import loader
from vramscope.loading.order import slots
from vramscope.loading.resident import ResidentModel
from vramscope.loading.skeleton import Skeleton


@pytest.fixture(params=[CopyingDevice, LateDevice])
def device(request):
    """One that gets whole tensors, and one to which they are copied through pinned memory."""
    return request.param()


@pytest.fixture
def qwen2(checkpoints):
    return resolve_directory(checkpoints("qwen2"))


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A checkpoint of some 10 MB, which is several chunks."""
    return resolve_directory(save_checkpoint("llama", tmp_path_factory.mktemp("large"), vocab_size=60000))


def places(module):
    return {slot.name: slot.tensor for slot in slots(module)}


def assert_nothing_left(device, before):
    assert device.allocated_bytes == 0
    assert device.live_copies == 0
    assert reading_threads() == []
    assert descriptors() == before


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_a_model_loaded_to_a_device_is_the_one_loaded_to_the_host(checkpoints, device, monitor, name, dtype):
    checkpoint = resolve_directory(checkpoints(name))
    loaded = loader.load(checkpoint, dtype, monitor, device)
    model = ResidentModel(IDENTITY, loaded.module, device if loaded.held else None, loaded.held)
    model.move(device, monitor)
    expected = places(load(checkpoint, dtype)[0])
    found = places(loaded.module)
    assert list(found) == list(expected)
    assert [place for place in found if not same_bits(found[place], expected[place])] == []
    assert device.snapshot().allocator.requested_bytes == model.nbytes
    model.unload()
    assert device.allocated_bytes == 0


@pytest.mark.parametrize("name", ["falcon", "gemma2", "gpt2", "llama", "mistral", "opt", "phi", "qwen2", "t5"])
def test_a_plain_model_goes_straight_there_in_the_order_that_the_skeleton_foretells(checkpoints, device, monitor, name):
    checkpoint = resolve_directory(checkpoints(name))
    loaded = loader.load(checkpoint, torch.float16, monitor, device)
    order = Skeleton(loaded.architecture, torch.float16).order(checkpoint.headers)
    held = [loaded.held[index].tensor.nbytes for index in range(len(order.tensors))]
    assert held == [tensor.nbytes for tensor in order.tensors]
    assert device.uploaded_bytes == [order.tensors[index].nbytes for index in order.direct]


@pytest.mark.parametrize("name", ["bert", "llava", "mixtral", "qwen2-moe", "vit"])
def test_a_model_whose_weights_are_renamed_or_computed_is_loaded_to_the_host(checkpoints, device, monitor, name):
    loaded = loader.load(resolve_directory(checkpoints(name)), torch.float16, monitor, device)
    assert loaded.held == {}
    assert device.uploaded == []
    assert not device.is_open


def test_the_phases_of_a_load(qwen2, monitor):
    loader.load(qwen2, torch.float16, monitor)
    assert monitor.phase_names == ["import", "read", "convert", "build"]
    assert monitor.entered == ["read"]


def test_the_phases_of_a_load_straight_to_a_device(qwen2, device, monitor):
    loader.load(qwen2, torch.float16, monitor, device)
    assert monitor.phase_names == ["import", "build", "context", "read", "convert", "copy", "synchronize"]
    assert monitor.reports[-1] == (qwen2.tensor_bytes, qwen2.tensor_bytes)


def test_a_tensor_of_another_kind_than_its_parameter_is_converted_on_the_way(qwen2, device, monitor, tmp_path):
    changed = copy_with(qwen2, tmp_path, lambda tensors: tensors.update({"model.norm.weight": torch.arange(32)}))
    expected = load(changed, torch.float16)[0].model.norm.weight
    assert expected.tolist() == list(range(32))
    module = loader.load(changed, torch.float16, monitor, device).module
    assert same_bits(module.model.norm.weight, expected)


@pytest.mark.parametrize("kind", [CopyingDevice, LateDevice])
def test_what_does_not_fit_leaves_nothing_on_the_device(large, monitor, kind):
    device, before = kind(capacity_bytes=6 * MIB), descriptors()
    with pytest.raises(OutOfMemoryError):
        loader.load(large, torch.float16, monitor, device)
    assert_nothing_left(device, before)
    assert "copy" not in monitor.phase_names


def test_a_cancelled_load_leaves_nothing_on_the_device(large, device):
    before = descriptors()
    with pytest.raises(StepCancelledError):
        loader.load(large, torch.float16, RecordingMonitor(checks_left=0), device)
    assert_nothing_left(device, before)


def test_a_file_cut_short_during_the_load_leaves_nothing_on_the_device(large, device, monitor, tmp_path):
    checkpoint = copy_with(large, tmp_path, lambda _: None)
    os.truncate(checkpoint.files[0], checkpoint.file_bytes - 100)
    before = descriptors()
    with pytest.raises(SourceError, match="while its header promises more"):
        loader.load(checkpoint, torch.float16, monitor, device)
    assert_nothing_left(device, before)


def test_an_incomplete_checkpoint_is_refused_before_anything_is_read(qwen2, device, monitor, tmp_path):
    checkpoint = copy_with(qwen2, tmp_path, lambda tensors: tensors.pop("model.layers.0.mlp.up_proj.weight"))
    with pytest.raises(StepError, match=r"not in the checkpoint: 'model\.layers\.0\.mlp\.up_proj\.weight'"):
        loader.load(checkpoint, torch.float16, monitor, device)
    assert device.uploaded == []


def test_a_device_without_room_for_its_context_is_told_before_anything_is_read(qwen2, monitor):
    device = SimulatedDevice("cuda:0", SimulatedCard(capacity_bytes=MIB, context_bytes=2 * MIB))
    with pytest.raises(OutOfMemoryError, match="a context needs"):
        loader.load(qwen2, torch.float16, monitor, device)
    assert monitor.phase_names == ["import", "build"]


def copy_with(checkpoint, directory, change):
    """The checkpoint, copied, with its tensors changed."""
    tensors = load_file(checkpoint.files[0])
    change(tensors)
    save_file(tensors, directory / "model.safetensors")
    (directory / "config.json").write_text((checkpoint.directory / "config.json").read_text())
    return resolve_directory(directory)

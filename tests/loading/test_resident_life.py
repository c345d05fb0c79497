"""What a loaded model says about itself, and that it leaves nothing behind."""

import gc
import weakref

import pytest
import torch
import transformers
from tests.loading.checkpoints import load, resolve_directory
from tests.loading.modules import Bag, parameter
from tests.loading.monitor import RecordingMonitor

from vramscope.devices.simulated import SimulatedCard, SimulatedDevice
from vramscope.loading.order import slots
from vramscope.loading.resident import ModelIdentity, ResidentModel
from vramscope.memory.resident import read_resident
from vramscope.memory.snapshot import Residency

MIB = 1 << 20
GIB = 1 << 30


def resident(module, **changes):
    facts = {
        "model": "m",
        "architecture": type(module).__name__,
        "dtype": "float16",
        "quantization": "",
        "revision": "abc",
        "file_bytes": 1000,
        "file_elements": 500,
        "context_window_tokens": 64,
    }
    return ResidentModel(ModelIdentity(**facts | changes), module)


@pytest.fixture
def device():
    return SimulatedDevice("cuda:0", SimulatedCard(capacity_bytes=GIB, context_bytes=MIB))


@pytest.fixture
def without_collection():
    """No garbage collection by itself while the test runs."""
    gc.disable()
    yield
    gc.enable()


def test_a_snapshot_counts_every_tensor_once_by_component_dtype_and_device(checkpoints, device):
    module, _ = load(resolve_directory(checkpoints("qwen2")), torch.float16)
    model = resident(module)
    for residency, where in ((Residency.HOST, "cpu"), (Residency.DEVICE, "cuda:0")):
        snapshot = model.snapshot()
        assert snapshot.residency is residency
        assert {group.device for group in snapshot.groups} == {where}
        assert {group.dtype for group in snapshot.groups} == {"float16"}
        assert snapshot.parameters == sum(tensor.numel() for tensor in module.parameters())
        assert snapshot.parameter_bytes == 2 * snapshot.parameters
        assert snapshot.bytes_on(where) == (snapshot.parameter_bytes, sum(tensor.nbytes for tensor in module.buffers()))
        assert sum(snapshot.bytes_on(where)) == model.nbytes
        model.move(device, RecordingMonitor())
    assert snapshot.bytes_on("cpu") == (0, 0)


def test_a_snapshot_names_the_parts_of_a_model(checkpoints):
    module, _ = load(resolve_directory(checkpoints("qwen2")), torch.float16)
    counts = {group.component: group.parameters for group in resident(module).snapshot().groups}
    layer = module.model.layers[0]
    assert counts == {
        "embedding": 96 * 32,  # the head is tied to it
        "attention": 2 * sum(tensor.numel() for tensor in layer.self_attn.parameters()),
        "mlp": 2 * 3 * 32 * 64,
        "norm": 5 * 32,
    }


def test_a_snapshot_tells_dtypes_apart(checkpoints):
    module, _ = load(resolve_directory(checkpoints("t5")), torch.float16)
    groups = {(group.component, group.dtype): group for group in resident(module).snapshot().groups}
    kept = groups["mlp", "float32"]
    assert (kept.parameters, kept.nbytes) == (4 * 32 * 64, 4 * 4 * 32 * 64)
    assert groups["mlp", "float16"].nbytes == 2 * groups["mlp", "float16"].parameters


def test_a_snapshot_carries_what_the_files_told(checkpoints):
    module, _ = load(resolve_directory(checkpoints("qwen2")), torch.float16)
    snapshot = resident(module, quantization="gptq").snapshot()
    assert (snapshot.model, snapshot.architecture, snapshot.dtype) == ("m", "Qwen2ForCausalLM", "float16")
    assert (snapshot.quantization, snapshot.revision) == ("gptq", "abc")
    assert (snapshot.file_bytes, snapshot.file_elements, snapshot.context_window_tokens) == (1000, 500, 64)


def test_a_module_without_buffers_reports_none():
    assert resident(Bag(weight=parameter(3))).snapshot().buffer_bytes == {}


@pytest.mark.usefixtures("without_collection")
@pytest.mark.parametrize("name", ["qwen2", "t5", "gpt2", "llava", "qwen2-moe"])
@pytest.mark.parametrize("on_device", [False, True], ids=["host", "device"])
def test_nothing_of_an_unloaded_model_is_left(checkpoints, device, name, on_device):
    model = resident(load(resolve_directory(checkpoints(name)), torch.float16)[0])
    storages = (slot.tensor.untyped_storage() for slot in slots(model._module))
    parts = [weakref.ref(part) for part in (model._module, *model._module.parameters(), *storages)]
    assert all(part() is not None for part in parts)
    if on_device:
        model.move(device, RecordingMonitor())
    model.unload()
    assert all(part() is None for part in parts)
    allocator = device.snapshot().allocator
    assert (allocator.allocated_bytes, model.nbytes) == (0, 0)
    device.empty_cache()
    assert device.snapshot().allocator.reserved_bytes == 0


@pytest.mark.usefixtures("without_collection")
def test_a_module_that_refers_to_itself_is_let_go_at_once():
    module = Bag(weight=parameter(3))
    module.parents = [module]
    model, part = resident(module), weakref.ref(module)
    del module
    model.unload()
    assert part() is None


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A checkpoint of some 100 MB, nearly all of it in one embedding."""
    config = transformers.Qwen2Config(
        vocab_size=98304,
        hidden_size=256,
        intermediate_size=256,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        tie_word_embeddings=True,
    )
    directory = tmp_path_factory.mktemp("large")
    transformers.Qwen2ForCausalLM(config).save_pretrained(directory)
    return resolve_directory(directory)


@pytest.mark.usefixtures("without_collection")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_unloading_gives_the_memory_back_to_the_system(large, dtype):
    def held():
        return read_resident().anonymous_bytes - before

    load(large, dtype)  # imports and first calls take memory of their own
    gc.collect()
    before = read_resident().anonymous_bytes
    model = resident(load(large, dtype)[0])
    assert model.nbytes == pytest.approx(25.6e6 * dtype.itemsize, rel=0.02)
    assert held() == pytest.approx(model.nbytes, rel=0.1)
    model.unload()
    assert held() < 5e6


@pytest.mark.usefixtures("without_collection")
def test_twenty_models_one_after_the_other_hold_no_more_than_two(large):
    levels = []
    for _ in range(20):
        resident(load(large, torch.bfloat16)[0]).unload()
        levels.append(read_resident().anonymous_bytes)
    assert max(levels[2:]) - levels[1] < 5e6

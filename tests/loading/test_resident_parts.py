"""A part of a model moves as a whole or not at all, and what is in several places is given back from all of them."""

import pytest
import torch
from tests.devices.contract import MIB, same_bits
from tests.loading.checkpoints import load, resolve_directory, save_checkpoint
from tests.loading.copying import CopyingDevice
from tests.loading.modules import IDENTITY, Bag, parameter
from tests.loading.monitor import RecordingMonitor

from vramscope.anatomy.components import Component
from vramscope.anatomy.parts import part_of
from vramscope.errors import OutOfMemoryError, PartError, StepCancelledError
from vramscope.loading import loader
from vramscope.loading.order import slots
from vramscope.loading.resident import ResidentModel
from vramscope.memory.resident import read_resident
from vramscope.memory.snapshot import Residency

FIRST, SECOND = part_of([(0, 1)], []), part_of([(2, 3)], [])


def stacked():
    """Four layers of two tensors of 4 MiB, and an embedding of 4 MiB."""
    layers = torch.nn.ModuleList(Bag(mlp=parameter(MIB), attn=parameter(MIB)) for _ in range(4))
    return Bag(embed=parameter(MIB), layers=layers)


def places(model):
    return model.snapshot().places


def state(model, module, *devices):
    pointers = [slot.tensor.data_ptr() for slot in slots(module)]
    return pointers, places(model), [device.snapshot().allocator.allocated_bytes for device in devices]


def test_parts_go_to_two_devices_and_the_whole_gathers_on_one(device, monitor):
    module, other = stacked(), CopyingDevice("cuda:1")
    model, before = ResidentModel(IDENTITY, module), [slot.tensor.clone() for slot in slots(module)]
    assert (model.move(device, monitor, FIRST).nbytes, model.device_name) == (16 * MIB, "mixed")
    assert model.move(other, monitor, SECOND).source == "cpu"
    assert places(model) == {"cpu": 4 * MIB, "cuda:0": 16 * MIB, "cuda:1": 16 * MIB}
    assert model.snapshot().residency is Residency.MIXED
    assert model.snapshot().whereabouts == "mixed: 4.00 MiB cpu, 16.00 MiB cuda:0, 16.00 MiB cuda:1"
    assert model.move(other, monitor, SECOND).tensors == 0
    moved = model.move(device, monitor)
    assert (moved.nbytes, moved.source, model.device_name) == (20 * MIB, "mixed", "cuda:0")
    assert (device.allocated_bytes, other.allocated_bytes) == (36 * MIB, 0)
    assert all(map(same_bits, [slot.tensor for slot in slots(module)], before))


@pytest.mark.parametrize("problem", ["out of memory", "cancelled"])
def test_a_part_that_stops_halfway_leaves_every_tensor_where_it_was(device, monitor, problem):
    module, small = (
        stacked(),
        CopyingDevice("cuda:1", capacity_bytes=22 * MIB if problem == "out of memory" else 64 * MIB),
    )
    model = ResidentModel(IDENTITY, module)
    model.move(device, monitor, FIRST)
    small.open()
    before = state(model, module, device, small)
    with pytest.raises(OutOfMemoryError if problem == "out of memory" else StepCancelledError):
        model.move(small, monitor if problem == "out of memory" else RecordingMonitor(checks_left=3))
    assert small.copies, "it stopped halfway"
    assert state(model, module, device, small) == before
    assert small.live_copies == 0


def test_a_part_that_is_not_there_changes_nothing(device, monitor):
    model = ResidentModel(IDENTITY, stacked())
    with pytest.raises(PartError, match="the model has no layer 4: it has layers 0-3"):
        model.move(device, monitor, part_of([(3, 4)], []))
    assert not device.is_open


def test_a_model_in_parts_is_given_back_from_everywhere(device, monitor):
    module, other = stacked(), CopyingDevice("cuda:1")
    model = ResidentModel(IDENTITY, module)
    model.move(device, monitor, FIRST)
    model.move(other, monitor, SECOND)
    del module
    model.unload()
    assert [(each.allocated_bytes, each.live_copies) for each in (device, other)] == [(0, 0), (0, 0)]
    assert model.snapshot().places == {}


@pytest.mark.parametrize("name", ["qwen2", "gpt2", "mixtral"])
@pytest.mark.parametrize(
    "part", [part_of([(0, 0)], [Component.EMBEDDING]), part_of([], [Component.ATTENTION])], ids=str
)
def test_a_load_of_a_part_is_the_same_model_with_only_the_part_on_the_device(checkpoints, device, monitor, name, part):
    checkpoint = resolve_directory(checkpoints(name))
    loaded = loader.load(checkpoint, torch.float16, monitor, device, part)
    model = ResidentModel(IDENTITY, loaded.module, device, loaded.held, loaded.arena)
    model.move(device, monitor, part)
    held = slots(loaded.module)
    chosen = part.indices([slot.name for slot in held])
    assert device.snapshot().allocator.requested_bytes == sum(held[index].tensor.nbytes for index in chosen)
    expected = slots(load(checkpoint, torch.float16)[0])
    assert [
        slot.name for slot, same in zip(held, expected, strict=True) if not same_bits(slot.tensor, same.tensor)
    ] == []
    model.unload()
    assert device.allocated_bytes == 0


def test_a_part_that_leaves_gives_its_memory_back_and_the_rest_stays_as_it_is(tmp_path, monitor):
    device = CopyingDevice(capacity_bytes=512 * MIB)
    directory = save_checkpoint("llama", tmp_path, vocab_size=64_000, hidden_size=512, intermediate_size=512)
    loaded = loader.load(resolve_directory(directory), torch.float32, monitor)
    model = ResidentModel(IDENTITY, loaded.module, None, None, loaded.arena)
    embedding = part_of([], [Component.EMBEDDING])
    staying = [(slot, slot.tensor.clone()) for slot in slots(loaded.module) if "embed_tokens" not in slot.name]
    del loaded
    before = read_resident().anonymous_bytes
    moved = model.move(device, monitor, embedding)
    assert moved.nbytes == 64_000 * 512 * 4
    # The copy of this device is in RAM, too: what it took is what the arena gave back.
    assert read_resident().anonymous_bytes - before < 16 * MIB
    assert all(same_bits(slot.tensor, copy) for slot, copy in staying)

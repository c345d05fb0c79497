"""Reading into a ring of pinned memory from which the device copies: what arrives, in which order, in which room."""

import pytest
import torch
from tests.devices.contract import MIB, same_bits
from tests.loading import files
from tests.loading.files import descriptors, read, reading_threads, tensors_of, write_in_order
from tests.loading.late import LateDevice
from tests.loading.modules import Bag
from tests.loading.monitor import RecordingMonitor
from torch import nn

from vramscope.errors import OutOfMemoryError, StepCancelledError
from vramscope.loading.dtypes import TORCH_DTYPES
from vramscope.loading.order import slots
from vramscope.loading.spans import PIECE_BYTES
from vramscope.loading.stream import RING_PIECES, Stream
from vramscope.memory.resident import read_resident

RING_BYTES = RING_PIECES * PIECE_BYTES


def noise(nbytes, dtype):
    return torch.randint(256, (nbytes,), dtype=torch.uint8).view(dtype)


def write(path, nbytes):
    """A file whose tensors begin anywhere, are of different dtypes, and of which one is larger than the ring."""
    tensors = {
        "small": noise(10, torch.int8),
        "odd": noise(3 * MIB + 6, torch.bfloat16),
        "empty": torch.empty(0, 3),
        "large": noise(nbytes, torch.bfloat16).view(2, -1),
        "wide": noise(5 * MIB, torch.float32),
        "flag": torch.ones((), dtype=torch.bool),
        "rest": noise(7 * MIB + 1, torch.uint8),
        **{f"tiny{n}": noise(2 * n, torch.float16) for n in range(1, 40)},
    }
    return write_in_order(path, tensors)


def stage(path, dtype=None):
    """A module over tensors that nobody has read yet; the file's order is not the module's."""

    def wanted(entry):
        stored = TORCH_DTYPES[entry.dtype]
        return dtype if dtype and stored.is_floating_point else stored

    staged = files.stage(tensors_of(path), wanted)
    views = dict(reversed(staged.views().items()))
    return Bag(
        **{name: nn.Parameter(view, requires_grad=False) for name, view in views.items()}, table=torch.ones(3)
    ), staged


def everything(module, staged, device):
    """The stream of a whole model."""
    return Stream(slots(module), staged, device, range(len(slots(module))))


def copied_bytes(monitor):
    return next(phase.nbytes for phase in monitor.phases if phase.name == "copy")


@pytest.fixture
def late():
    return LateDevice(capacity_bytes=1024 * MIB)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write(tmp_path_factory.mktemp("large") / "model.safetensors", RING_BYTES + 9 * MIB)


@pytest.mark.parametrize("dtype", [None, torch.float16, torch.float32], ids=str)
def test_every_tensor_arrives_bit_for_bit(late, path, dtype):
    module, staged = stage(path, dtype)
    before = read_resident().anonymous_bytes
    stream, monitor = everything(module, staged, late), RecordingMonitor()
    held, _ = stream.run(monitor)
    grown = read_resident().anonymous_bytes - before
    expected = read(path, dtype=dtype)
    assert [name for name, tensor in expected.items() if not same_bits(getattr(module, name).data, tensor)] == []
    pointers = {index: slot.tensor.data_ptr() for index, slot in enumerate(slots(module))}
    assert {index: each.tensor.data_ptr() for index, each in held.items()} == pointers
    assert stream.staging == "pinned"
    assert (late.most_pinned, late.pinned, late.queue) == (RING_BYTES, 0, [])
    assert grown < 24 * MIB  # of the arena no page was touched, and the ring is gone
    assert copied_bytes(monitor) == sum(tensor.nbytes for tensor in expected.values())


def test_room_is_taken_in_the_order_of_the_file_then_for_what_no_file_holds(late, path):
    module, staged = stage(path)
    everything(module, staged, late).run(RecordingMonitor())
    in_file = [entry.nbytes for _, entry in tensors_of(path) if entry.nbytes]
    assert [nbytes for nbytes in late.uploaded_bytes if nbytes] == [*in_file, 12]


@pytest.mark.parametrize("dtype", [None, torch.float16], ids=str)
def test_what_does_not_go_to_the_device_stays_in_the_arena(late, path, dtype):
    module, staged = stage(path, dtype)
    places = slots(module)
    # Some that are larger than a piece stay, and one that is larger than the ring.
    going = [index for index, slot in enumerate(places) if index % 3 == 0 and slot.name not in ("large", "wide")]
    going.append(len(places) - 1)
    staying = [slot for index, slot in enumerate(places) if index not in going]
    monitor = RecordingMonitor()
    held, _ = Stream(places, staged, late, going).run(monitor)
    expected = read(path, dtype=dtype)
    assert [name for name, tensor in expected.items() if not same_bits(getattr(module, name).data, tensor)] == []
    assert sorted(held) == going
    assert copied_bytes(monitor) == sum(
        places[index].tensor.nbytes for index in going if places[index].name in expected
    )
    assert [slot.name for slot in staying if slot.tensor.numel() and not staged.arena.holds(slot.tensor)] == []
    assert (late.most_pinned, late.pinned, late.queue) == (RING_BYTES, 0, [])


def test_a_small_model_gets_a_small_ring(late, tmp_path):
    module, staged = stage(write_in_order(tmp_path / "model.safetensors", {"a": noise(100, torch.uint8)}))
    everything(module, staged, late).run(RecordingMonitor())
    assert late.most_pinned == 2 * PIECE_BYTES


@pytest.mark.parametrize("problem", [OutOfMemoryError, StepCancelledError])
def test_what_ends_midway_leaves_nothing_and_frees_nothing_that_a_copy_still_writes_to(path, problem):
    full = problem is OutOfMemoryError
    late = LateDevice(capacity_bytes=(60 if full else 1024) * MIB)
    module, staged = stage(path)
    level = descriptors()
    monitor = RecordingMonitor(checks_left=None if full else 4)
    with pytest.raises(problem):
        everything(module, staged, late).run(monitor)
    assert (late.allocated_bytes, late.live_copies, late.pinned, late.queue) == (0, 0, 0, [])
    assert late.released_in_flight == 0
    assert (reading_threads(), descriptors()) == ([], level)

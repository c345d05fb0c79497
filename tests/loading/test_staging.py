"""Copies through pinned memory: whole, in order, within their room, and over before anything is used or released."""

from itertools import pairwise

import pytest
import torch
from tests.devices.contract import MIB, same_bits
from tests.loading.copying import CopyingDevice
from tests.loading.late import LateDevice
from tests.loading.modules import IDENTITY, MODULES, Bag, parameter
from tests.loading.monitor import RecordingMonitor

from vramscope.devices.simulated import SimulatedCard, SimulatedDevice
from vramscope.errors import OutOfMemoryError, StepCancelledError
from vramscope.loading.dtypes import TORCH_DTYPES
from vramscope.loading.order import slots
from vramscope.loading.resident import ResidentModel
from vramscope.loading.staging import SLOT_BYTES, copying, room_on_host

DTYPES = [*TORCH_DTYPES.values(), torch.complex128]
LAYOUTS = {
    "plain": lambda tensor: tensor,
    "transposed": torch.Tensor.t,
    "strided": lambda tensor: tensor[:, ::2],
    "offset": lambda tensor: tensor[1:, 1:],
    "repeated": lambda tensor: tensor[:1].expand(4, 6),
    "empty": lambda tensor: tensor[:0],
    "scalar": lambda tensor: tensor[2, 3],
    "one row": lambda tensor: tensor[1:2],
}


@pytest.fixture
def late():
    return LateDevice(capacity_bytes=512 * MIB)


def noise(count, dtype=torch.uint8):
    bits = torch.randint(256, (count * dtype.itemsize,), dtype=torch.uint8)
    return bits.bool() if dtype is torch.bool else bits.view(dtype)


def there_and_back(device, tensors):
    """What is on the device after copies of all tensors, and what comes back to the host."""
    nbytes = sum(tensor.nbytes for tensor in tensors)
    with copying(device, nbytes) as copies:
        held = [copies.upload(tensor) for tensor in tensors]
        copies.finish()
    there = [each.tensor.clone() for each in held]
    _, back = room_on_host([each.tensor for each in held])
    with copying(device, nbytes) as copies:
        for each, into in zip(held, back, strict=True):
            copies.download(each, into)
        copies.finish()
    return there, back


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_and_layout_arrives_and_comes_back_bit_for_bit(late, dtype):
    tensors = [change(noise(24, dtype).view(4, 6)) for change in LAYOUTS.values()]
    there, back = there_and_back(late, tensors)
    assert all(map(same_bits, there, tensors))
    assert all(map(same_bits, back, tensors))
    assert [tensor.stride() for tensor in back] == [tensor.stride() for tensor in there]


def test_conjugated_and_negated_views_arrive_with_their_values(late):
    numbers = torch.complex(torch.randn(5), torch.randn(5))
    tensors = [numbers.conj(), numbers.conj().imag]
    assert (tensors[0].is_conj(), tensors[1].is_neg()) == (True, True)
    there, back = there_and_back(late, tensors)
    assert all(map(torch.equal, there, tensors))
    assert all(map(torch.equal, back, tensors))


SIZES = {
    "many small": [1, 7, 511, 512, 513, 4096] * 40,
    "a slot": [SLOT_BYTES],
    "a byte more than a slot": [SLOT_BYTES + 1, 3],
    "more than both slots": [5 * SLOT_BYTES // 2 + 12345],
    "large among small": [100, 3 * SLOT_BYTES + 1, 1, 2 * SLOT_BYTES, 77],
    "nothing": [],
    "nothing but empty": [0, 0],
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_tensors_of_any_size_share_and_fill_the_slots(late, sizes):
    tensors = [noise(size) for size in sizes]
    there, back = there_and_back(late, tensors)
    assert all(map(torch.equal, there, tensors))
    assert all(map(torch.equal, back, tensors))
    assert late.most_pinned <= 2 * SLOT_BYTES
    assert late.most_pinned <= sum(sizes) + 1024
    assert late.pinned == 0


def test_what_comes_back_lies_in_one_arena_in_order(late):
    tensors = [noise(size) for size in (5, 0, 700, 1)]
    _, back = there_and_back(late, tensors)
    assert len({tensor.untyped_storage().data_ptr() for tensor in back}) == 1
    addresses = [tensor.data_ptr() for tensor in back if tensor.numel()]
    assert all(second - first >= 5 for first, second in pairwise(addresses))


@pytest.mark.parametrize("name", MODULES)
def test_a_model_goes_there_and_back_unchanged(late, monitor, name):
    module = MODULES[name]()
    before = [slot.tensor.clone() for slot in slots(module)]
    model = ResidentModel(IDENTITY, module)
    nbytes = sum(tensor.nbytes for tensor in before)
    for target in (late, None, late, None):
        model.move(target, monitor)
        assert late.queue == []
        assert late.pinned == 0
        assert all(map(same_bits, (slot.tensor for slot in slots(module)), before))
        assert late.snapshot().allocator.requested_bytes == (nbytes if target else 0)
    assert late.released_in_flight == 0


def broken_move(late, monitor, problem):
    """The model, what its tensors were, and what a move to the device came to."""
    module = Bag(**{f"w{n}": parameter(MIB + n) for n in range(10)})
    before = [(slot.tensor.data_ptr(), slot.tensor.clone()) for slot in slots(module)]
    model = ResidentModel(IDENTITY, module)
    with pytest.raises(problem) as caught:
        model.move(late, monitor)
    return module, before, caught


@pytest.mark.parametrize("problem", [OutOfMemoryError, StepCancelledError])
def test_nothing_is_released_while_a_copy_is_in_flight(problem):
    late = LateDevice(capacity_bytes=(30 if problem is OutOfMemoryError else 64) * MIB)
    monitor = RecordingMonitor(checks_left=6)
    module, before, caught = broken_move(late, monitor, problem)
    assert 3 < len(late.copies) < 10
    assert late.released_in_flight == 0
    assert (late.allocated_bytes, late.live_copies, late.pinned, late.queue) == (0, 0, 0, [])
    assert [slot.tensor.data_ptr() for slot in slots(module)] == [pointer for pointer, _ in before]
    assert caught.value.__traceback__ is not None


def test_a_way_back_that_is_cancelled_leaves_all_on_the_device(late, monitor):
    module = Bag(**{f"w{n}": parameter(MIB) for n in range(10)})
    before = [slot.tensor.clone() for slot in slots(module)]
    model = ResidentModel(IDENTITY, module)
    model.move(late, monitor)
    with pytest.raises(StepCancelledError):
        model.move(None, RecordingMonitor(checks_left=7))
    assert model.device_name == "cuda:0"
    assert (late.pinned, late.queue, late.released_in_flight) == (0, [], 0)
    assert late.allocated_bytes == 40 * MIB
    assert all(map(same_bits, (slot.tensor for slot in slots(module)), before))


def test_a_move_says_how_it_was_staged(late, monitor):
    card = SimulatedCard(capacity_bytes=64 * MIB, context_bytes=MIB)
    for device, expected in (
        (late, "pinned"),
        (CopyingDevice(), "pageable"),
        (SimulatedDevice("cuda:0", card), "none"),
    ):
        model = ResidentModel(IDENTITY, Bag(weight=parameter(10)))
        assert [model.move(target, monitor).staging for target in (device, None)] == [expected] * 2

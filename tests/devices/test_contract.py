"""Every kind of device keeps the promises of devices/protocol.py. CUDA takes part where torch sees a device."""

from itertools import pairwise

import pytest
import torch
from tests.devices.contract import MIB, RIGS, Holder, same_bits, too_much

from vramscope.errors import OutOfMemoryError
from vramscope.loading.dtypes import TORCH_DTYPES
from vramscope.memory.snapshot import AllocatorMemory

KIB = 1 << 10
SHAPES = ((), (0,), (0, 3), (3, 0, 2), (1,), (5,), (3, 5), (7, 1, 3))


@pytest.fixture(params=RIGS)
def rig(request):
    rig = RIGS[request.param]()
    yield rig
    rig.close()


@pytest.fixture
def device(rig):
    return rig.devices[0]


@pytest.fixture
def holder(device):
    holder = Holder(device)
    yield holder
    holder.drop()


def random_bits(shape, dtype):
    count = torch.Size(shape).numel()
    if dtype is torch.bool:
        return torch.randint(2, shape).bool()
    bits = torch.randint(256, (count * dtype.itemsize,), dtype=torch.uint8)
    return bits.view(dtype).view(shape)


# The first test here, because a CUDA context cannot be taken back within a process.
def test_only_opening_creates_a_context(rig, device):
    if rig.has_context(device):
        pytest.skip("another test opened this device's context already")
    device.snapshot()
    device.facts()
    device.empty_cache()
    device.reset_peak()
    assert not device.is_open
    assert not rig.has_context(device)
    device.open()
    assert device.is_open
    assert rig.has_context(device)


def test_opening_again_changes_nothing(device):
    device.open()
    before = device.snapshot()
    device.open()
    assert device.snapshot() == before


def test_an_upload_opens_the_device(device, holder):
    holder.take(1)
    assert device.is_open


def test_a_device_that_was_never_used_holds_nothing(device):
    snapshot = device.snapshot()
    assert snapshot.allocator == AllocatorMemory()
    assert (snapshot.device, snapshot.backend) == (device.name, device.backend)


def test_facts_name_the_device_and_its_size(device):
    facts = device.facts()
    assert (facts.device, facts.backend) == (device.name, device.backend)
    assert facts.name
    assert facts.total_bytes > 0


def downloaded(device, held):
    """What a tensor of a device is in other memory of the host."""
    into = torch.empty_like(held.tensor, device="cpu")
    device.download(held, into)
    return into


@pytest.mark.parametrize("dtype", TORCH_DTYPES.values(), ids=TORCH_DTYPES)
def test_what_comes_back_is_what_went_there_bit_for_bit(device, dtype):
    for shape in SHAPES:
        original = random_bits(shape, dtype)
        held = device.upload(original)
        device.synchronize()
        assert same_bits(downloaded(device, held), original)
        device.release(held)


VIEWS = {
    "transposed": torch.Tensor.t,
    "strided": lambda tensor: tensor[:, ::2],
    "offset": lambda tensor: tensor[1:, 1:],
    "repeated": lambda tensor: tensor[:1].expand(4, 6),
}


@pytest.mark.parametrize("change", VIEWS.values(), ids=VIEWS)
def test_views_arrive_with_their_values_and_without_the_rest_of_their_storage(device, change):
    original = change(random_bits((4, 6), torch.float32))
    held = device.upload(original)
    assert same_bits(downloaded(device, held), original)
    assert device.snapshot().allocator.requested_bytes == original.numel() * 4
    device.release(held)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (3, 0, 2)])
def test_an_empty_tensor_takes_no_block(device, shape):
    held = device.upload(torch.empty(shape))
    assert device.snapshot().allocator.allocated_bytes == 0
    assert device.snapshot().allocator.reserved_bytes == 0
    device.release(held)


@pytest.mark.parametrize(
    ("nbytes", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),
        (512, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB + 1, 12 * MIB, 12 * MIB),  # the rest of the segment is too small to be split off
        (21 * MIB, 22 * MIB, 22 * MIB),
    ],
)
def test_a_block_is_rounded_and_comes_from_a_segment_of_the_right_size(device, holder, nbytes, allocated, reserved):
    holder.take(nbytes)
    memory = device.snapshot().allocator
    assert memory.requested_bytes == nbytes
    assert memory.allocated_bytes == memory.active_bytes == allocated
    assert memory.reserved_bytes == reserved
    assert memory.inactive_split_bytes == reserved - allocated


def test_small_and_large_blocks_share_segments_of_their_own_kind(holder):
    for _ in range(2):
        holder.take(KIB)
        holder.take(8 * MIB)
    assert holder.allocated_bytes == 2 * KIB + 16 * MIB
    assert holder.reserved_bytes == 22 * MIB


def test_a_released_block_serves_the_next_request(holder):
    holder.take(3 * MIB)
    reserved = holder.reserved_bytes
    holder.drop()
    holder.take(4 * MIB)
    assert holder.reserved_bytes == reserved


def test_releasing_returns_to_the_level_before_and_keeps_the_cache(device, holder):
    keeper = Holder(device)
    keeper.take(5 * MIB)
    levels = [keeper.allocated_bytes]
    for nbytes in (700, 3 * MIB, 40 * MIB):
        holder.take(nbytes)
        levels.append(holder.allocated_bytes)
    assert all(before < after for before, after in pairwise(levels))
    reserved = holder.reserved_bytes
    holder.drop()
    assert (holder.allocated_bytes, holder.reserved_bytes) == (levels[0], reserved)
    keeper.drop()
    assert holder.allocated_bytes == 0


def test_emptying_the_cache_gives_the_free_segments_back(device, holder):
    keeper = Holder(device)
    keeper.take(MIB)
    holder.take(40 * MIB)
    holder.drop()
    device.empty_cache()
    assert holder.reserved_bytes == 2 * MIB
    keeper.drop()
    device.empty_cache()
    assert holder.reserved_bytes == 0


def test_the_peak_stays_until_it_is_reset_to_what_is_live(device, holder):
    keeper = Holder(device)
    keeper.take(512)
    device.reset_peak()
    holder.take(40 * MIB)
    holder.drop()
    memory = device.snapshot().allocator
    assert memory.allocated_peak_bytes == 40 * MIB + 512
    assert memory.reserved_peak_bytes == 42 * MIB
    device.reset_peak()
    memory = device.snapshot().allocator
    assert memory.allocated_peak_bytes == memory.allocated_bytes == 512
    assert memory.reserved_peak_bytes == memory.reserved_bytes == 42 * MIB
    keeper.drop()


def test_out_of_memory_takes_nothing_and_is_counted(device, holder):
    holder.take(3 * MIB)
    before = device.snapshot().allocator
    with pytest.raises(OutOfMemoryError):
        device.upload(too_much())
    after = device.snapshot().allocator
    assert after.allocated_bytes == before.allocated_bytes
    assert after.requested_bytes == before.requested_bytes
    assert after.reserved_bytes == before.reserved_bytes
    assert (after.alloc_retries, after.ooms) == (before.alloc_retries + 1, before.ooms + 1)


def test_out_of_memory_gives_the_cache_back_before_it_gives_up(device, holder):
    holder.take(30 * MIB)
    holder.drop()
    with pytest.raises(OutOfMemoryError):
        device.upload(too_much())
    assert holder.reserved_bytes == 0


def test_an_error_holds_no_other_error_whose_frames_hold_tensors(device):
    with pytest.raises(OutOfMemoryError) as caught:
        device.upload(too_much())
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


def test_a_device_works_on_after_out_of_memory(device):
    with pytest.raises(OutOfMemoryError):
        device.upload(too_much())
    original = random_bits((1000,), torch.float16)
    held = device.upload(original)
    assert same_bits(downloaded(device, held), original)
    device.release(held)


def test_two_devices_know_nothing_of_each_other(rig):
    if len(rig.devices) == 1:
        pytest.skip("there is only one device")
    first, second = (Holder(device) for device in rig.devices[:2])
    first.take(3 * MIB)
    assert not second.device.is_open
    second.take(40 * MIB)
    assert (first.allocated_bytes, second.allocated_bytes) == (3 * MIB, 40 * MIB)
    first.drop()
    first.device.empty_cache()
    assert (first.reserved_bytes, second.reserved_bytes) == (0, 40 * MIB)
    second.drop()


def test_used_and_free_make_the_total_where_the_device_plays_the_driver(device, holder):
    for nbytes in (0, 700, 25 * MIB):
        holder.take(nbytes)
        driver = device.snapshot().driver
        if driver is None:
            pytest.skip("the driver tells that itself")
        assert driver.used_bytes + driver.free_bytes == driver.total_bytes == device.facts().total_bytes
        assert driver.process_used_bytes <= driver.used_bytes


def test_what_is_live_is_what_was_uploaded_and_not_given_back(device, holder):
    before = device.live()
    sizes = (1000, 3 * MIB, 64 * MIB)
    for nbytes in (0, *sizes):
        holder.take(nbytes)
    empty, *addresses = holder.addresses
    assert empty is None
    live = {address: nbytes for address, nbytes in device.live().items() if address not in before}
    assert live == dict(zip(addresses, sizes, strict=True))
    holder.drop()
    assert device.live() == before

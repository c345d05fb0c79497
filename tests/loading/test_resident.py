"""A model moves as a whole or not at all, to a simulated device and back."""

import weakref

import pytest
from tests.devices.contract import MIB, same_bits
from tests.loading.copying import CopyingDevice
from tests.loading.modules import IDENTITY, MODULES, Bag, parameter
from tests.loading.monitor import RecordingMonitor

from vramscope.errors import OutOfMemoryError, StepCancelledError
from vramscope.loading.order import slots
from vramscope.loading.resident import ResidentModel


def values(module):
    return [slot.tensor.clone() for slot in slots(module)]


def pointers(module):
    return [slot.tensor.data_ptr() for slot in slots(module)]


def large():
    """A module of ten times 4 MiB."""
    return Bag(**{f"w{n}": parameter(MIB) for n in range(10)})


@pytest.mark.parametrize("name", MODULES)
def test_a_model_goes_to_a_device_and_back_unchanged(device, monitor, name):
    module = MODULES[name]()
    model, before = ResidentModel(IDENTITY, module), values(module)
    nbytes = sum(tensor.nbytes for tensor in before)
    assert model.device_name == "cpu"
    assert model.move(device, monitor).nbytes == nbytes
    assert model.device_name == ("cuda:0" if before else "cpu")
    assert device.snapshot().allocator.requested_bytes == nbytes
    assert all(map(same_bits, values(module), before))
    assert model.move(None, monitor).nbytes == nbytes
    assert (model.device_name, device.allocated_bytes) == ("cpu", 0)
    assert all(map(same_bits, values(module), before))


@pytest.mark.parametrize("name", MODULES)
def test_tensors_move_in_the_order_of_their_slots(device, monitor, name):
    module = MODULES[name]()
    order = pointers(module)
    ResidentModel(IDENTITY, module).move(device, monitor)
    assert device.uploaded == order


def test_the_module_uses_the_copies_and_the_originals_are_let_go(device, monitor):
    module = large()
    originals = [weakref.ref(slot.tensor.untyped_storage()) for slot in slots(module)]
    pointers_before = pointers(module)
    assert all(original() is not None for original in originals)
    model = ResidentModel(IDENTITY, module)
    model.move(device, monitor)
    assert set(pointers(module)).isdisjoint(pointers_before)
    assert all(original() is None for original in originals)
    assert device.live_copies == 10
    model.move(None, monitor)
    assert device.live_copies == 0
    assert len(model.storages()) == 1  # they came back to one arena


def test_tied_parameters_move_once_and_stay_tied(device, monitor):
    module = MODULES["tied"]()
    model = ResidentModel(IDENTITY, module)
    model.move(device, monitor)
    assert module.first.weight is module.second.weight is module.weight
    assert device.snapshot().allocator.requested_bytes == (6 * 4 + 3) * 4
    model.move(None, monitor)
    assert module.first.weight is module.second.weight is module.weight


def test_moving_to_where_it_is_does_nothing(device, monitor):
    model = ResidentModel(IDENTITY, large())
    assert model.move(None, monitor).nbytes == 0
    model.move(device, monitor)
    before = device.snapshot()
    assert model.move(device, monitor).nbytes == 0
    assert device.snapshot() == before


def test_a_model_moves_from_one_device_to_another(device, monitor):
    module, other = large(), CopyingDevice("cuda:1")
    model, before = ResidentModel(IDENTITY, module), values(module)
    model.move(device, monitor)
    model.move(other, monitor)
    assert model.device_name == "cuda:1"
    assert (device.allocated_bytes, other.allocated_bytes) == (0, 40 * MIB)
    assert device.live_copies == 0
    assert all(map(same_bits, values(module), before))


def test_a_move_reports_its_phases_and_its_progress(device, monitor):
    model = ResidentModel(IDENTITY, large())
    model.move(device, monitor)
    assert [(phase.name, phase.nbytes) for phase in monitor.phases] == [
        ("context", None),
        ("copy", 40 * MIB),
        ("synchronize", None),
    ]
    assert monitor.reports == [(4 * MIB * n, 40 * MIB) for n in range(1, 11)]
    model.move(None, monitor)
    assert monitor.phase_names[3:] == ["copy", "synchronize"]  # the context is there already


def assert_nothing_happened(model, module, before, device, live=0):
    assert model.device_name == "cpu"
    assert pointers(module) == before
    assert device.allocated_bytes == 0
    assert device.live_copies == live


def test_out_of_memory_in_the_middle_leaves_the_model_where_it_was(monitor):
    module, device = large(), CopyingDevice(capacity_bytes=30 * MIB)
    model, before = ResidentModel(IDENTITY, module), pointers(module)
    with pytest.raises(OutOfMemoryError) as caught:  # the error is still alive below, and with it its frames
        model.move(device, monitor)
    assert_nothing_happened(model, module, before, device)
    assert 0 < len(device.copies) < 10
    assert monitor.phase_names == ["context"]
    assert caught.value.hint == ""


def test_a_model_that_did_not_fit_moves_once_there_is_room(monitor):
    module, device = large(), CopyingDevice(capacity_bytes=60 * MIB)
    neighbour = ResidentModel(IDENTITY, Bag(weight=parameter(5 * MIB)))
    neighbour.move(device, monitor)
    model = ResidentModel(IDENTITY, module)
    with pytest.raises(OutOfMemoryError):
        model.move(device, monitor)
    assert device.allocated_bytes == 20 * MIB
    neighbour.move(None, monitor)
    model.move(device, monitor)
    assert (model.device_name, device.allocated_bytes) == ("cuda:0", 40 * MIB)


@pytest.mark.parametrize("checks", [0, 1, 5, 9])
def test_a_cancelled_move_leaves_the_model_where_it_was(device, checks):
    module = large()
    model, before = ResidentModel(IDENTITY, module), pointers(module)
    with pytest.raises(StepCancelledError):
        model.move(device, RecordingMonitor(checks_left=checks))
    assert_nothing_happened(model, module, before, device)
    assert len(device.copies) == checks


def test_a_cancelled_way_back_leaves_the_model_on_the_device(device, monitor):
    module = large()
    model = ResidentModel(IDENTITY, module)
    model.move(device, monitor)
    before = pointers(module)
    with pytest.raises(StepCancelledError) as caught:
        model.move(None, RecordingMonitor(checks_left=3))
    assert caught.value.__traceback__ is not None  # its frames are alive, and must not hold the copies
    assert (model.device_name, device.allocated_bytes) == ("cuda:0", 40 * MIB)
    assert pointers(module) == before
    assert device.live_copies == 10


def test_a_device_without_room_for_its_context_changes_nothing(monitor):
    module, device = large(), CopyingDevice(capacity_bytes=MIB - 1)
    model, before = ResidentModel(IDENTITY, module), pointers(module)
    with pytest.raises(OutOfMemoryError, match="a context needs"):
        model.move(device, monitor)
    assert_nothing_happened(model, module, before, device)
    assert monitor.phases == []


def test_two_models_on_one_device_do_not_mix(device, monitor):
    first, second = (ResidentModel(IDENTITY, Bag(weight=parameter(MIB))) for _ in range(2))
    first.move(device, monitor)
    second.move(device, monitor)
    assert device.allocated_bytes == 8 * MIB
    first.unload()
    assert device.allocated_bytes == 4 * MIB
    second.move(None, monitor)
    assert device.allocated_bytes == 0

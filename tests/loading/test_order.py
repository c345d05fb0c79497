"""slots() against the order in which torch's own Module._apply, which Module.to() is made of, moves tensors."""

import pytest
import torch
from tests.loading.checkpoints import ARCHITECTURES, load, resolve_directory
from tests.loading.modules import MODULES, Bag, parameter

from vramscope.loading.order import slots


class Moves:
    """Copies a tensor as a move to another device does: only if it is not there already."""

    def __init__(self):
        self.order = []
        self._arrived = {}

    def __call__(self, tensor):
        if tensor.data_ptr() in self._arrived or id(tensor) in self._arrived:
            return tensor
        self.order.append((tuple(tensor.shape), tensor.dtype, tensor.clone()))
        copy = torch.empty_like(tensor).copy_(tensor) if tensor.numel() else tensor.clone()
        self._arrived[copy.data_ptr() or id(copy)] = copy  # kept, so that no other tensor gets its address
        return copy


def moved_by_torch(module):
    moves = Moves()
    with torch.no_grad():
        module._apply(moves)
    return moves.order


def same_order(found, expected):
    return len(found) == len(expected) and all(
        (tuple(slot.tensor.shape), slot.tensor.dtype) == (shape, dtype) and torch.equal(slot.tensor, value)
        for slot, (shape, dtype, value) in zip(found, expected, strict=True)
    )


@pytest.mark.parametrize("name", MODULES)
def test_slots_are_what_torch_moves_in_its_order(name):
    module = MODULES[name]()
    found = slots(module)
    before = [slot.tensor.clone() for slot in found]
    assert same_order(found, moved_by_torch(module))
    assert all(torch.equal(slot.tensor, tensor) for slot, tensor in zip(found, before, strict=True))


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_slots_of_real_models_are_what_torch_moves(checkpoints, name):
    model, _ = load(resolve_directory(checkpoints(name)), torch.float16)
    assert same_order(slots(model), moved_by_torch(model))


def test_children_come_first_then_parameters_then_buffers():
    module = Bag(table=torch.ones(1), own=parameter(1), child=Bag(table=torch.ones(1), weight=parameter(1)))
    assert [(slot.name, slot.is_buffer) for slot in slots(module)] == [
        ("child.weight", False),
        ("child.table", True),
        ("own", False),
        ("table", True),
    ]


def test_a_tied_parameter_is_one_slot_under_its_first_name():
    assert [slot.name for slot in slots(MODULES["tied"]())] == ["first.weight", "second.other"]


def test_a_shared_buffer_has_a_slot_at_each_place():
    assert [slot.name for slot in slots(MODULES["shared buffer"]())] == ["first.table", "second.table", "table"]


def test_a_module_in_several_places_is_moved_once():
    assert [slot.name for slot in slots(MODULES["shared module"]())] == ["first.weight", "first.table", "other.own"]


def test_assigning_to_a_tied_parameter_changes_it_everywhere():
    module = MODULES["tied"]()
    slots(module)[0].assign(torch.zeros(6, 4))
    assert module.first.weight is module.second.weight is module.weight
    assert not module.weight.any()


def test_assigning_to_a_buffer_changes_only_its_place():
    module = MODULES["shared buffer"]()
    slots(module)[0].assign(torch.zeros(9))
    assert not module.first.table.any()
    assert module.second.table is module.table


def test_a_slot_whose_tensor_was_taken_away_says_so():
    module = Bag(weight=parameter(2), table=torch.ones(2))
    weight, table = slots(module)
    module.weight = None
    module.table = None
    for slot in (weight, table):
        with pytest.raises(KeyError, match=f"{slot.name} holds no tensor any more"):
            _ = slot.tensor
    with pytest.raises(KeyError):
        weight.assign(torch.ones(2))

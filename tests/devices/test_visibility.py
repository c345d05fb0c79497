"""CUDA ordinals to devices of NVML, without a device: the rules are CUDA's documentation's, and torch's own reading."""

import pytest
import torch

from vramscope.devices.cards import Card
from vramscope.devices.visibility import find, visible_cards
from vramscope.memory.snapshot import DeviceFacts

FIRST = Card(index="0", uuid="GPU-8932f937-d72c", name="A100", pci_bus_id="00000000:41:00.0")
SECOND = Card(index="1", uuid="GPU-893b1111-aaaa", name="A100", pci_bus_id="00000000:01:00.0")
THIRD = Card(index="2", uuid="GPU-f0000000-bbbb", name="A100", pci_bus_id="00000000:81:00.0")
CARDS = (SECOND, FIRST, THIRD)  # not in NVML's order, so that the PCI addresses have to decide
BY_INDEX = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

PARENT = Card(index="3", uuid="GPU-aaaa", name="A100", pci_bus_id="00000000:c1:00.0", is_partitioned=True)
SLICE = Card(index="3:0", uuid="MIG-cccc1111", gpu_instance=7, compute_instance=0)
OTHER_SLICE = Card(index="3:1", uuid="MIG-cccc2222", gpu_instance=8, compute_instance=0)
MIG = (PARENT, SLICE, OTHER_SLICE)


def indices(cards, value, **more):
    environment = {**more} if value is None else {"CUDA_VISIBLE_DEVICES": value, **more}
    return [None if card is None else card.index for card in visible_cards(cards, environment)]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ["1", "0", "2"]),
        ("", []),
        ("0", ["1"]),
        ("2,1", ["2", "0"]),
        (" 2 , 1 ", ["2", "0"]),
        ("0,2,-1,1", ["1", "2"]),
        ("-1", []),
        ("7", []),
        ("9" * 5000, []),
        ("0,7,1", ["1"]),
        ("0,x,1", ["1"]),
        ("1gpu2,2ampere", ["0", "2"]),
        ("+1", ["0"]),
        ("0,,1", ["1"]),
        ("none", []),
        ("NoDevFiles", []),
        ("0,0", []),
        ("GPU-8932f937-d72c", ["0"]),
        ("GPU-8932,GPU-f", ["0", "2"]),
        ("GPU-893", []),
        ("GPU-f,GPU-none,GPU-8932", ["2"]),
        ("GPU-f, GPU-8932", ["2", "0"]),
        ("GPU-f,GPU-f0", []),
        ("GPU-f,0", ["2"]),
        ("0,GPU-f", ["1"]),
        ("GPU-", []),
    ],
)
def test_visible_devices_as_cuda_reads_them(value, expected):
    assert indices(CARDS, value, **BY_INDEX) == expected


@pytest.mark.parametrize("value", ["", "0", "2,1", " 2 , 1", "0,2,-1,1", "0,x,1", "1gpu2,2ampere", "+1", "0,0", "0,,1"])
def test_numbers_are_read_as_torch_reads_them(value, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    cards = tuple(Card(index=str(index), name="A100") for index in range(4))
    assert indices(cards, value) == [str(number) for number in torch.cuda._parse_visible_devices()]


def test_without_an_order_unlike_cards_are_not_told_apart_by_their_numbers():
    mixed = (FIRST, Card(index="1", uuid="GPU-9", name="H100", pci_bus_id="00000000:02:00.0"))
    assert indices(mixed, None) == [None, None]
    assert indices(mixed, "1") == [None]
    assert indices(mixed, "GPU-9") == ["1"]
    assert indices(mixed, "1", **BY_INDEX) == ["0"]
    assert indices((FIRST,), "0") == ["0"]


def test_nameless_cards_are_not_taken_for_alike():
    assert indices((Card(index="0"), Card(index="1")), None) == [None, None]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("MIG-cccc1111", ["3:0"]),
        ("MIG-cccc2222,MIG-cccc1111", ["3:1", "3:0"]),
        ("MIG-none", []),
        ("MIG-GPU-aaaa/8/0", ["3:1"]),
        ("MIG-GPU-aaaa/9/0", []),
        ("MIG-GPU-bbbb/8/0", []),
        ("MIG-cccc1111,0", ["3:0"]),
        ("GPU-aaaa", [None]),
        ("0", [None]),
        (None, [None]),
    ],
)
def test_mig_instances_by_each_of_their_names(value, expected):
    assert indices(MIG, value) == expected


def test_only_instance_of_a_gpu_is_the_gpu_for_cuda():
    assert indices((PARENT, SLICE), None) == ["3:0"]
    assert indices((PARENT, SLICE), "GPU-aaaa") == ["3:0"]


def test_partitioned_gpu_without_instances_is_no_device():
    assert indices((PARENT,), None) == [None]


def test_numbers_beside_a_partitioned_gpu_are_not_guessed():
    assert indices((FIRST, *MIG), "0,1") == [None, None]


def facts(ordinal=0, **known):
    return DeviceFacts(device=f"cuda:{ordinal}", backend="cuda", name="A100", **known)


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        ({"uuid": "GPU-f0000000-bbbb"}, "2"),
        ({"uuid": "f0000000-BBBB"}, "2"),
        ({"pci_bus_id": "00000000:81:00.0"}, "2"),
        ({"pci_bus_id": "0000:81:00.0"}, "2"),
        ({"pci_bus_id": "garbage", "uuid": "GPU-8932f937-d72c"}, "0"),
        ({"uuid": "GPU-elsewhere"}, None),
        ({"pci_bus_id": "00000000:ff:00.0"}, None),
        ({}, "1"),
    ],
)
def test_what_torch_tells_comes_before_the_number(known, expected):
    """torch counts in the reverse order of NVML here: the ordinal 0 alone would name another card."""
    card = find(facts(**known), CARDS, BY_INDEX)
    assert (card and card.index) == expected


@pytest.mark.parametrize(
    ("known", "value", "expected"),
    [
        ({"uuid": "GPU-cccc2222"}, None, "3:1"),
        ({"uuid": "GPU-aaaa"}, "MIG-cccc2222", "3:1"),
        ({"uuid": "GPU-aaaa"}, "MIG-GPU-aaaa/7/0", "3:0"),
        ({"pci_bus_id": "00000000:c1:00.0"}, "MIG-cccc2222", "3:1"),
        ({"uuid": "GPU-aaaa"}, None, None),
        ({}, "MIG-cccc2222", "3:1"),
    ],
)
def test_uuid_of_a_partitioned_gpu_leaves_the_instance_to_the_variable(known, value, expected):
    environment = {} if value is None else {"CUDA_VISIBLE_DEVICES": value}
    card = find(facts(**known), (FIRST, *MIG), environment)
    assert (card and card.index) == expected


def test_ordinal_that_is_not_visible_is_no_card():
    assert find(facts(5), CARDS, BY_INDEX) is None

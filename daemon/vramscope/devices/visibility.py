"""Which device of NVML a CUDA device is.

torch tells a device's UUID and PCI address. Where it tells neither, or the UUID of a GPU that is cut into MIG
instances, the variables that CUDA itself reads decide: CUDA_VISIBLE_DEVICES, whose forms and rules are those of
https://docs.nvidia.com/cuda/cuda-programming-guide/05-appendices/environment-variables.html and of torch.cuda's own
reading of it, and CUDA_DEVICE_ORDER. What they leave open is not guessed.
"""

import re
from collections.abc import Mapping, Sequence

from vramscope.devices.cards import Card, instances_of
from vramscope.memory.snapshot import DeviceFacts

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
PCI_BUS_ID = "PCI_BUS_ID"

_NUMBER = re.compile(r"[+-]?[0-9]{1,9}")  # more digits are no number of a device, and too many no number to Python
# How a MIG instance was named before driver 470: its GPU, GPU instance and compute instance.
_OLD_MIG = re.compile(r"MIG-(GPU-[0-9a-fA-F-]+)/([0-9]+)/([0-9]+)")


def find(facts: DeviceFacts, cards: Sequence[Card], environment: Mapping[str, str]) -> Card | None:
    """The device of NVML that torch's `facts` are about; None where that cannot be told."""
    named = _by_uuid(facts.uuid, cards) or _by_address(facts.pci_bus_id, cards)
    if named is not None and not (instances := instances_of(named, cards)):
        return named
    visible = visible_cards(cards, environment)
    ordinal = int(facts.device.rpartition(":")[2])
    card = visible[ordinal] if ordinal < len(visible) else None
    if named is None:
        return None if facts.uuid or facts.pci_bus_id else card
    if card in instances:
        return card
    return instances[0] if len(instances) == 1 else None


def visible_cards(cards: Sequence[Card], environment: Mapping[str, str]) -> tuple[Card | None, ...]:
    """The device of NVML behind each CUDA ordinal; None where the variables do not decide it.

    Ordinals beyond the answer do not exist, or nothing is known about them.
    """
    ordered = _ordered(cards, environment.get(ORDER, ""))
    value = environment.get(VISIBLE)
    if value is None:
        return ordered
    found: list[Card | None] = []
    kinds: set[str] = set()
    for entry in value.split(","):
        text = entry.strip()
        kinds.add(_kind(text))
        if len(kinds) > 1 or not (candidates := _entry(text, cards, ordered)):
            break  # what follows an entry that names nothing is not visible
        if candidates[0] is not None and candidates[0] in found:
            return ()  # CUDA takes no device at all where one stands twice
        found.append(candidates[0])
    return tuple(found)


def _kind(text: str) -> str:
    return text[:4] if text.startswith(("GPU-", "MIG-")) else "number"


def _entry(text: str, cards: Sequence[Card], ordered: Sequence[Card | None]) -> Sequence[Card | None]:
    """The one device that an entry names, which may be unknown; nothing where it names none."""
    if old := _OLD_MIG.fullmatch(text):
        gpus = {card.index for card in cards if card.uuid == old[1]}
        wanted = (int(old[2]), int(old[3]))
        return [card for card in cards if card.gpu in gpus and (card.gpu_instance, card.compute_instance) == wanted]
    if text.startswith(("GPU-", "MIG-")):
        named = [card for card in cards if card.uuid.startswith(text)]
        return [_whole(named[0], cards)] if len(named) == 1 else []
    number = _NUMBER.match(text)
    index = int(number[0]) if number else -1
    return [ordered[index]] if 0 <= index < len(ordered) else []


def _ordered(cards: Sequence[Card], order: str) -> tuple[Card | None, ...]:
    """The GPUs as CUDA counts them when all are visible.

    By default the fastest comes first and the order of the rest is not specified, so that only cards of one kind can be
    told apart by their numbers. Of MIG instances CUDA takes one, and which one is not specified either.
    """
    gpus = [card for card in cards if not card.is_instance]
    if order != PCI_BUS_ID and len(gpus) > 1 and (len({card.name for card in gpus}) > 1 or not gpus[0].name):
        return (None,) * len(gpus)
    if len(gpus) > 1 and any(card.is_partitioned for card in gpus):
        return (None,) * len(gpus)
    if all(card.pci_bus_id for card in gpus):
        gpus.sort(key=lambda card: card.pci_bus_id.lower())
    return tuple(_whole(card, cards) for card in gpus)


def _whole(card: Card, cards: Sequence[Card]) -> Card | None:
    """The device that holds this one's memory: itself, or its only MIG instance."""
    instances = instances_of(card, cards)
    if len(instances) == 1:
        return instances[0]
    return None if instances or (card.is_partitioned and not card.is_instance) else card


def _by_uuid(uuid: str, cards: Sequence[Card]) -> Card | None:
    """torch tells the bare UUID of a MIG instance like that of a GPU."""
    bare = _bare(uuid)
    return next((card for card in cards if bare and _bare(card.uuid) == bare), None)


def _bare(uuid: str) -> str:
    return uuid.removeprefix("GPU-").removeprefix("MIG-").lower()


def _by_address(address: str, cards: Sequence[Card]) -> Card | None:
    """NVML writes a PCI address with a domain of 8 digits or of 4."""
    wanted = _address(address)
    return next((card for card in cards if wanted and _address(card.pci_bus_id) == wanted), None)


def _address(address: str) -> tuple[int, ...]:
    parts = re.split("[:.]", address)
    try:
        return tuple(int(part, 16) for part in parts) if address else ()
    except ValueError:
        return ()

"""Which devices CUDA takes, by CUDA_VISIBLE_DEVICES in each of its forms, and in which order it numbers them."""

from collections.abc import Sequence

from vramscope.devices.cards import Card, without_partitioned
from vramscope.devices.nvml import Nvml, NvmlError
from vramscope.devices.visibility import ORDER, PCI_BUS_ID, VISIBLE, visible_cards
from vramscope.doctor._frame import Check, Finding, Machine, State

_CONTAINER = "NVIDIA_VISIBLE_DEVICES"


def _look(machine: Machine) -> Finding:
    value = machine.environment.get(VISIBLE)
    if machine.environment.get(_CONTAINER) in {"void", "none"}:
        found = f"{_CONTAINER}={machine.environment[_CONTAINER]}: the container was given no device"
        return machine.without_gpu(found, "start the container with its GPUs: `--gpus all`")
    if value is not None and value.split(",")[0].strip() in {"", "-1", "NoDevFiles"}:
        return machine.without_gpu(f"{VISIBLE}={value!r} hides every device", f"unset {VISIBLE}, or name devices")
    cards = _cards()
    if not cards:
        said = f"{VISIBLE} is not set" if value is None else f"{VISIBLE}={value}"
        return Finding(state=State.NOTE, found=f"{said}; there is no device that NVML could compare it with")
    if value is None:
        return _all_of(machine, cards)
    return _some_of(machine, value, cards)


def _all_of(machine: Machine, cards: Sequence[Card]) -> Finding:
    found = f"{VISIBLE} is not set: all {len(without_partitioned(cards))} devices are visible"
    if len({card.name for card in cards}) > 1 and machine.environment.get(ORDER) != PCI_BUS_ID:
        found += ", and CUDA numbers them by speed where nvidia-smi goes by address"
        return Finding(state=State.NOTE, found=found, advice=f"set {ORDER}={PCI_BUS_ID} for one numbering")
    return Finding(state=State.OK, found=found)


def _some_of(machine: Machine, value: str, cards: Sequence[Card]) -> Finding:
    entries = [entry.strip() for entry in value.split(",")]
    visible = visible_cards(cards, machine.environment)
    if not visible:
        found = f"{VISIBLE}={value} names no device, or one twice: CUDA takes none"
        return machine.without_gpu(found, "name devices by number, GPU-UUID or MIG-UUID, as `nvidia-smi -L` lists them")
    names = [f"cuda:{n} is {_name(card)}" for n, card in enumerate(visible)]
    if len(visible) < len(entries):
        found = f"{VISIBLE}={value}: {entries[len(visible)]!r} names no device, and CUDA ignores all from there on"
        return Finding(state=State.WARNING, found=f"{found}; {', '.join(names)}", advice="correct or remove that entry")
    return Finding(state=State.OK, found=f"{VISIBLE}={value}: {', '.join(names)}")


def _name(card: Card | None) -> str:
    return "not decided by the variables" if card is None else f"{card.uuid or card.index} ({card.name or 'unknown'})"


def _cards() -> tuple[Card, ...]:
    nvml = Nvml()
    try:
        nvml.start()
        return nvml.cards(nvml.count())
    except NvmlError:
        return ()  # which the check of NVML tells
    finally:
        nvml.stop()


CHECK = Check(title="CUDA visibility", look=_look)

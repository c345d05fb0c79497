"""Free space where models of the Hugging Face hub are kept, and whether a download may write there."""

from vramscope.doctor._frame import Check, Finding, Machine
from vramscope.doctor._space import room_of


def _look(machine: Machine) -> Finding:
    return room_of(machine.hub_cache, "HF_HUB_CACHE", "a download")


CHECK = Check(title="hub cache", look=_look)

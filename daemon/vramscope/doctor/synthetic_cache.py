"""Free space where synthetic checkpoints are made, and whether they may be written there."""

from vramscope.doctor._frame import Check, Finding, Machine
from vramscope.doctor._space import room_of


def _look(machine: Machine) -> Finding:
    return room_of(machine.cache, "VRAMSCOPE_CACHE", "making a synthetic checkpoint")


CHECK = Check(title="synthetic cache", look=_look)

"""Whose number is believed where the driver and the worker both tell how much of a device the worker uses."""

from dataclasses import replace

from vramscope.devices.own import settled_with
from vramscope.memory.snapshot import MEASURED, DriverMemory
from vramscope.supervisor.state import RunState


def believed(state: RunState, device: str, memory: DriverMemory, asked_at: float) -> DriverMemory:
    """The driver's account of `asked_at` with the own use that fits what the worker told; see devices/own.py.

    What the worker's allocator has is not known while a step changes it. Then the number that the driver lists is
    believed, unless it was not before.
    """
    if device not in {facts.device for facts in state.worker.devices}:
        return memory  # the worker has nothing on it to compare with
    held = next((each for each in state.devices if each.device == device), None)
    before = state.driver.get(device)
    if held is not None and held.driver is not None and asked_at < state.sampled_at:
        return held.driver  # the worker has asked since
    if held is not None and not state.is_memory_changing:
        return settled_with(memory, held)
    if held is None or (before is not None and before.process_used_source == MEASURED):
        return replace(memory, process_used_bytes=None, process_used_source="")
    return memory

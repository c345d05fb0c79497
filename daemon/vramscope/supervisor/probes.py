"""Looks at the worker and its devices from outside, on a schedule, so that they are known while the worker is busy."""

import asyncio
import time
from collections.abc import Callable

from vramscope.devices.nvml import Nvml, NvmlError
from vramscope.events import Event
from vramscope.memory.resident import read_resident
from vramscope.memory.snapshot import DeviceFacts, DriverMemory, DriverSampled, ResidentSampled
from vramscope.supervisor.state import Store

INTERVAL_SECONDS = 1.0
CUDA = "cuda"


async def watch_resident(store: Store, publish: Callable[[Event], None]) -> None:
    """Publish what the worker's process holds in RAM, once a second, until cancelled."""
    while True:
        pid = store.state.worker.pid
        resident = read_resident(pid) if pid is not None else None
        if resident is not None:
            publish(ResidentSampled(at=time.time(), resident=resident))
        await asyncio.sleep(INTERVAL_SECONDS)


async def watch_driver(store: Store, publish: Callable[[Event], None]) -> None:
    """Publish what NVML says about the worker's CUDA devices, once a second, until cancelled.

    NVML is asked in a thread, one call at a time: a driver that hangs costs that thread and nothing else.
    """
    nvml = Nvml()
    while True:
        worker = store.state.worker
        if worker.up and worker.pid is not None and worker.backend == CUDA:
            publish(await asyncio.to_thread(_sample, nvml, worker.devices, worker.pid))
        await asyncio.sleep(INTERVAL_SECONDS)


def _sample(nvml: Nvml, devices: tuple[DeviceFacts, ...], pid: int) -> DriverSampled:
    memory: dict[str, DriverMemory] = {}
    errors: dict[str, str] = {}
    for facts in devices:
        try:
            memory[facts.device] = nvml.sample(facts, pid)
        except NvmlError as error:
            errors[facts.device] = str(error)
    return DriverSampled(at=time.time(), devices=memory, errors=errors)

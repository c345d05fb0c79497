"""Which devices a worker uses, and why."""

import os
from functools import partial

import torch

from vramscope.devices.cuda import BACKEND as CUDA
from vramscope.devices.cuda import CudaDevice
from vramscope.devices.driver import BoundedNvml
from vramscope.devices.protocol import Device
from vramscope.devices.simulated import BACKEND as SIMULATED
from vramscope.devices.simulated import SimulatedCard, SimulatedDevice
from vramscope.errors import UsageError, reason_of
from vramscope.memory.allocator import DEFAULT_SETTINGS, AllocatorSettings
from vramscope.settings import DeviceMode, SimulationSettings


def cuda_obstacle() -> str:
    """Why torch cannot use CUDA here, as a clause; empty where it can."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is built without CUDA"
    try:
        torch.cuda.init()  # type: ignore[no-untyped-call]
    except RuntimeError as error:
        return f"torch cannot start CUDA: {reason_of(error)}"
    return "" if torch.cuda.device_count() else "torch sees no CUDA device"


def choose_devices(
    mode: DeviceMode, simulation: SimulationSettings, allocator: AllocatorSettings = DEFAULT_SETTINGS
) -> tuple[str, str, dict[str, Device]]:
    """Return backend, the reason for it, and the devices by name; `allocator` is what a simulated one follows.

    Raises UsageError where CUDA is demanded and cannot be had.
    """
    obstacle = "" if mode is DeviceMode.SIMULATED else cuda_obstacle()
    if mode is DeviceMode.CUDA and obstacle:
        raise UsageError(f"--device cuda: {obstacle}", hint="use --device simulated to run without a GPU")
    if mode is not DeviceMode.SIMULATED and not obstacle:
        ask_driver = partial(BoundedNvml(os.environ).sample, pid=os.getpid())
        devices: list[Device] = [CudaDevice(ordinal, ask_driver) for ordinal in range(torch.cuda.device_count())]
        why = "asked for by --device cuda" if mode is DeviceMode.CUDA else f"torch sees {len(devices)} CUDA device(s)"
        return CUDA, why, {device.name: device for device in devices}
    simulated: list[Device] = [
        SimulatedDevice(
            name,
            SimulatedCard(
                capacity_bytes=capacity,
                context_bytes=simulation.context_bytes,
                other_bytes=simulation.other_bytes,
                bandwidth_bytes_per_second=simulation.bandwidth_bytes_per_second,
                allocator=allocator,
            ),
        )
        for name, capacity in simulation.capacity_bytes.items()
    ]
    return SIMULATED, obstacle or "asked for on the command line", {device.name: device for device in simulated}

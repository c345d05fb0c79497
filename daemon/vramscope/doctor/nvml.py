"""NVML, which every figure of the driver comes from: its versions, and each device that it lists."""

from vramscope.devices.nvml import Nvml, NvmlError
from vramscope.doctor._frame import Check, Finding, Machine, State
from vramscope.doctor._hardware import gpus, kernel_module
from vramscope.units import format_bytes


def _look(machine: Machine) -> Finding:
    nvml = Nvml()
    try:
        nvml.start()
        return _listed(machine, nvml)
    except NvmlError as error:
        if error.is_absent and not gpus(machine) and kernel_module(machine) is None:
            return Finding(state=State.NOTE, found="no NVML library, and no GPU that it would tell of")
        advice = error.hint or "install the driver's libnvidia-ml; in a container, the NVIDIA Container Toolkit"
        return machine.without_gpu(error.message, advice)
    finally:
        nvml.stop()


def _listed(machine: Machine, nvml: Nvml) -> Finding:
    versions = nvml.versions()
    cards = nvml.cards(nvml.count())
    driver = f"driver {versions.driver or 'unknown'}, CUDA up to {versions.cuda_text}"
    if not cards:
        return machine.without_gpu(f"{driver}; no device", "give the container a GPU: `--gpus all`")
    told, lost = [], ""
    for card in cards:
        try:
            total = nvml.memory(card).memory.total_bytes
        except NvmlError as error:
            told.append(f"{card.index} {error.message}")
            lost = lost or error.hint or "look for Xid in the kernel's log"
        else:
            told.append(f"{card.index} {card.name or 'unknown'} {format_bytes(total) if total else 'of unknown size'}")
    found = f"{driver}; {', '.join(told)}"
    return Finding(state=State.WARNING if lost else State.OK, found=found, advice=lost)


CHECK = Check(title="NVML", look=_look)

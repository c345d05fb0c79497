"""NVML, the driver's own account of its devices, through nvidia-ml-py. The only file that imports pynvml.

One funnel: whatever NVML answers becomes a value, or an NvmlError with the reason. Unknown is None, never 0.
"""

from collections.abc import Callable
from typing import Any

import pynvml

from vramscope.errors import VramscopeError
from vramscope.memory.snapshot import DeviceFacts, DriverMemory


class NvmlError(VramscopeError):
    """NVML cannot answer; the text says why."""


def _call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return function(*arguments, **options)
    except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError) as error:
        raise NvmlError(f"{function.__name__}: {error}") from None


class Nvml:
    """One NVML session. Started once; after a failure the next sample starts it anew."""

    def __init__(self) -> None:
        self._started = False

    def uuids(self) -> tuple[str, ...]:
        """The UUIDs of all devices of this machine, in NVML's order. Raises NvmlError."""
        self._start()
        handles = (_call(pynvml.nvmlDeviceGetHandleByIndex, index) for index in range(_call(pynvml.nvmlDeviceGetCount)))
        return tuple(str(_call(pynvml.nvmlDeviceGetUUID, handle)) for handle in handles)

    def sample(self, facts: DeviceFacts, pid: int) -> DriverMemory:
        """What the driver says about a CUDA device, and about one process on it. Raises NvmlError."""
        self._start()
        try:
            handle = self._handle(facts)
            return self._memory(handle, pid)
        except NvmlError:
            self.stop()
            raise

    def _start(self) -> None:
        if not self._started:
            _call(pynvml.nvmlInit)
            self._started = True

    def stop(self) -> None:
        if self._started:
            self._started = False
            try:
                pynvml.nvmlShutdown()
            except pynvml.NVMLError:
                return  # it is gone already

    @staticmethod
    def _handle(facts: DeviceFacts) -> Any:
        """The handle of a CUDA device: by UUID, else by PCI address; an index would mean another order."""
        if facts.uuid:
            return _call(pynvml.nvmlDeviceGetHandleByUUID, facts.uuid)
        if facts.pci_bus_id:
            return _call(pynvml.nvmlDeviceGetHandleByPciBusId, facts.pci_bus_id)
        raise NvmlError(f"{facts.device} has neither a UUID nor a PCI address to find it by")

    @staticmethod
    def _memory(handle: Any, pid: int) -> DriverMemory:
        reserved: int | None = None
        try:
            memory = _call(pynvml.nvmlDeviceGetMemoryInfo, handle, version=pynvml.nvmlMemory_v2)
            reserved = int(memory.reserved)
        except NvmlError:
            memory = _call(pynvml.nvmlDeviceGetMemoryInfo, handle)  # drivers before 510 have no v2
        total = int(memory.total)
        if total == 0:
            raise NvmlError("nvmlDeviceGetMemoryInfo: the driver reports a device of 0 bytes")
        return DriverMemory(
            total_bytes=total,
            used_bytes=int(memory.used),
            free_bytes=int(memory.free),
            reserved_bytes=reserved,
            process_used_bytes=_process_used(handle, pid, total),
        )


def _process_used(handle: Any, pid: int, total: int) -> int | None:
    """Bytes that one process uses; None where NVML does not tell, or does not list it (as across PID namespaces)."""
    try:
        processes = _call(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    except NvmlError:
        return None
    used = [process.usedGpuMemory for process in processes if process.pid == pid]
    return max((value for value in used if value is not None and value <= total), default=None)

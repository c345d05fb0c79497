"""NVML, the driver's own account of its devices, through nvidia-ml-py. The only file that imports pynvml.

One funnel: whatever NVML answers becomes a value, or an NvmlError with the reason. Unknown is None, never 0.
"""

import queue
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pynvml

from vramscope.errors import VramscopeError
from vramscope.memory.snapshot import DeviceFacts, DriverMemory

# A healthy driver answers within some milliseconds.
ANSWER_SECONDS = 0.5
# How often an answer is asked for anew because memory was taken or given back while it was made.
TRIES = 3


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
        """One picture of the device and of the process, though NVML has to be asked for each of them apart."""
        own = _process_used(handle, pid)
        for _ in range(TRIES):
            memory = _device_memory(handle)
            before, own = own, _process_used(handle, pid)
            if own == before:
                break
        known = own is not None and memory.total_bytes is not None and own <= memory.total_bytes
        return replace(memory, process_used_bytes=own if known else None)


class BoundedNvml:
    """NVML for a thread that must not hang: what does not answer in time has said nothing, until it is back."""

    def __init__(self, seconds: float = ANSWER_SECONDS) -> None:
        self._seconds = seconds
        self._nvml = Nvml()
        self._asking: threading.Thread | None = None

    def sample(self, facts: DeviceFacts, pid: int) -> DriverMemory | None:
        """As Nvml.sample; None where NVML fails or does not answer."""
        if self._asking is not None and self._asking.is_alive():
            return None
        answers: queue.SimpleQueue[DriverMemory | None] = queue.SimpleQueue()
        self._asking = threading.Thread(target=self._ask, args=(facts, pid, answers.put), name="nvml", daemon=True)
        self._asking.start()
        try:
            return answers.get(timeout=self._seconds)
        except queue.Empty:
            return None

    def _ask(self, facts: DeviceFacts, pid: int, answer: Callable[[DriverMemory | None], None]) -> None:
        try:
            answer(self._nvml.sample(facts, pid))
        except NvmlError:
            answer(None)


def _device_memory(handle: Any) -> DriverMemory:
    """What the driver says about all of a device's memory."""
    reserved: int | None = None
    try:
        memory = _call(pynvml.nvmlDeviceGetMemoryInfo, handle, version=pynvml.nvmlMemory_v2)
        reserved = int(memory.reserved)
    except NvmlError:
        memory = _call(pynvml.nvmlDeviceGetMemoryInfo, handle)  # drivers before 510 have no v2
    if int(memory.total) == 0:
        raise NvmlError("nvmlDeviceGetMemoryInfo: the driver reports a device of 0 bytes")
    return DriverMemory(
        total_bytes=int(memory.total),
        used_bytes=int(memory.used),
        free_bytes=int(memory.free),
        reserved_bytes=reserved,
    )


def _process_used(handle: Any, pid: int) -> int | None:
    """Bytes that one process uses; None where NVML does not tell, or does not list it (as across PID namespaces)."""
    try:
        processes = _call(pynvml.nvmlDeviceGetComputeRunningProcesses, handle)
    except NvmlError:
        return None
    used = (process.usedGpuMemory for process in processes if process.pid == pid)
    return max((value for value in used if value is not None), default=None)

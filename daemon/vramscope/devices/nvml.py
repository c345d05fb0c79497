"""NVML, the driver's own account of its devices, through nvidia-ml-py. The only file that imports pynvml.

One funnel: whatever NVML answers becomes a value, or an NvmlError with the reason. Unknown is None, never 0.
"""

import ctypes
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pynvml

from vramscope.devices.cards import Card
from vramscope.devices.told import NOT_SUPPORTED, ProcessesTold, Told, memory_told, processes_told
from vramscope.errors import VramscopeError
from vramscope.memory.snapshot import DriverMemory

# What a call through nvidia-ml-py may raise: NVML's own errors (the mismatch is not one of them), ctypes' and a text
# that is none.
FAULTS = (
    pynvml.NVMLError,
    pynvml.NVMLLibraryMismatchError,
    ctypes.ArgumentError,
    OSError,
    ValueError,
    TypeError,
    AttributeError,
    MemoryError,
    OverflowError,
)
HINTS: Mapping[int, str] = {
    pynvml.NVML_ERROR_NO_PERMISSION: "a container sees only the devices and MIG instances that it was given",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "load the nvidia kernel module; it is asked again until it answers",
    pynvml.NVML_ERROR_GPU_IS_LOST: "the GPU fell off the bus: look for Xid in the kernel's log, then reset or reboot",
    pynvml.NVML_ERROR_RESET_REQUIRED: "reset the GPU, or reboot",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: (
        "driver/library version mismatch: the driver was updated while its kernel module ran; reload the modules, "
        "or reboot"
    ),
    # https://github.com/NVIDIA/nvidia-container-toolkit/issues/48
    pynvml.NVML_ERROR_UNKNOWN: (
        "in a container this is what a daemon-reload on the host leaves behind: restart the container"
    ),
}
# Failures after which NVML answers again only if it is started anew.
RENEWING: frozenset[int] = frozenset(
    {
        pynvml.NVML_ERROR_UNINITIALIZED,
        pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
        pynvml.NVML_ERROR_GPU_IS_LOST,
        pynvml.NVML_ERROR_RESET_REQUIRED,
        pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH,
        pynvml.NVML_ERROR_UNKNOWN,
    }
)
ABSENT: int = pynvml.NVML_ERROR_LIBRARY_NOT_FOUND
SIZE_TRIES = 3


class NvmlError(VramscopeError):
    """NVML cannot answer; the text says why. `code` is NVML's, None where the library itself failed."""

    def __init__(self, message: str, *, hint: str = "", code: int | None = None) -> None:
        super().__init__(message, hint=hint)
        self.code = code

    @property
    def is_absent(self) -> bool:
        """Whether there is no NVML on this machine at all (CUDA's stub library says so too)."""
        return self.code == ABSENT

    @property
    def needs_renewal(self) -> bool:
        return self.code is not None and self.code in RENEWING


def _error(function: str, error: Exception) -> NvmlError:
    code = getattr(error, "value", None) if isinstance(error, pynvml.NVMLError) else None
    if isinstance(error, pynvml.NVMLLibraryMismatchError):
        code = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
    try:
        text = str(error).splitlines()[0].rstrip(".")
    except (*FAULTS, IndexError):  # NVML itself is asked for the text of a code that nvidia-ml-py does not know
        text = f"error {code}" if code is not None else type(error).__name__
    return NvmlError(f"{function}: {text}", hint=HINTS.get(code or 0, ""), code=code)


def _call(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    try:
        return function(*arguments, **options)
    except FAULTS as error:
        name = getattr(function, "__name__", "NVML")
        raise _error(name, error) from None


def _text(function: Callable[..., Any], *handle: Any) -> str:
    """A text about a device or the driver; empty where NVML does not tell it, or tells no text."""
    try:
        answer = _call(function, *handle)
    except NvmlError:
        return ""
    return answer if isinstance(answer, str) and answer.isprintable() else ""


def _number(function: Callable[..., Any], handle: Any) -> int | None:
    try:
        return int(_call(function, handle))
    except NvmlError:
        return None


class Nvml:
    """One NVML session: started once, and anew only after `stop`. Every method may take as long as the driver likes."""

    def __init__(self) -> None:
        self._is_started = False
        self._handles: dict[str, Any] = {}

    def start(self) -> None:
        """Raises NvmlError."""
        if not self._is_started:
            _call(pynvml.nvmlInit)
            self._is_started = True

    def stop(self) -> None:
        if self._is_started:
            self._is_started = False
            self._handles.clear()
            try:
                _call(pynvml.nvmlShutdown)
            except NvmlError:
                return  # it is gone already

    def driver_version(self) -> str:
        """The version of the driver, empty where NVML does not tell it."""
        return _text(pynvml.nvmlSystemGetDriverVersion)

    def count(self) -> int:
        """How many GPUs NVML lists. Raises NvmlError."""
        return int(_call(pynvml.nvmlDeviceGetCount))

    def cards(self, count: int) -> tuple[Card, ...]:
        """The first `count` GPUs in NVML's order, each followed by its MIG instances."""
        return tuple(card for number in range(count) for card in self.cards_of(number))

    def cards_of(self, number: int) -> tuple[Card, ...]:
        """A GPU and its MIG instances; a lost one says so itself."""
        return tuple(self._gpu(number))

    def memory(self, card: Card) -> Told:
        """All of a device's memory. Raises NvmlError, but not where the device has no memory of its own to tell of."""
        handle = self._handle(card)
        try:
            told = _memory(pynvml.nvmlDeviceGetMemoryInfo, handle, version=pynvml.nvmlMemory_v2)
            if told.reason:
                told = _memory(pynvml.nvmlDeviceGetMemoryInfo, handle)
        except NvmlError:
            try:
                told = _memory(pynvml.nvmlDeviceGetMemoryInfo, handle)  # drivers before 510 have no v2
            except NvmlError as error:
                if error.code != pynvml.NVML_ERROR_NOT_SUPPORTED:
                    raise
                told = Told(memory=DriverMemory(), reason=f"{NOT_SUPPORTED}: {error}")
        return told

    def processes(self, card: Card, limit_bytes: int | None) -> ProcessesTold:
        """The processes on a device; sizes above `limit_bytes`, the device's total, are no sizes."""
        try:
            entries = _listed("Compute", self._handle(card))
        except NvmlError as error:
            return ProcessesTold(used_bytes={}, reason=f"the use of each process is not known: {error}")
        for kind in ("Graphics", "MPSCompute"):
            try:
                entries += _listed(kind, self._handle(card))
            except NvmlError:
                continue  # a device may do without
        return processes_told(entries, limit_bytes)

    def _handle(self, card: Card) -> Any:
        if card.problem:
            raise NvmlError(card.problem, code=card.problem_code)
        if (handle := self._handles.get(card.index)) is None:
            raise NvmlError(f"NVML no longer lists {card.device}", code=pynvml.NVML_ERROR_UNINITIALIZED)
        return handle

    def _gpu(self, number: int) -> Iterator[Card]:
        index = str(number)
        self._handles.pop(index, None)
        try:
            handle = _call(pynvml.nvmlDeviceGetHandleByIndex, number)
        except NvmlError as error:
            yield Card(index=index, problem=str(error), problem_code=error.code)
            return
        self._handles[index] = handle
        instances = tuple(self._instances(index, handle))
        yield _describe(index, handle, is_partitioned=bool(instances) or _mig_mode(handle))
        yield from instances

    def _instances(self, gpu: str, parent: Any) -> Iterator[Card]:
        """The MIG instances of a GPU. Their numbers may have gaps."""
        if not _mig_mode(parent):
            return
        for number in range(_number(pynvml.nvmlDeviceGetMaxMigDeviceCount, parent) or 0):
            try:
                handle = _call(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, parent, number)
            except NvmlError:
                continue
            index = f"{gpu}:{number}"
            self._handles[index] = handle
            yield _describe(index, handle)


def _mig_mode(handle: Any) -> bool:
    try:
        current, _pending = _call(pynvml.nvmlDeviceGetMigMode, handle)
    except NvmlError:
        return False
    return bool(current == pynvml.NVML_DEVICE_MIG_ENABLE)


def _describe(index: str, handle: Any, *, is_partitioned: bool = False) -> Card:
    is_instance = ":" in index
    return Card(
        index=index,
        uuid=_text(pynvml.nvmlDeviceGetUUID, handle),
        name=_text(pynvml.nvmlDeviceGetName, handle),
        pci_bus_id="" if is_instance else _text(_pci_bus_id, handle),
        is_partitioned=is_partitioned,
        gpu_instance=_number(pynvml.nvmlDeviceGetGpuInstanceId, handle) if is_instance else None,
        compute_instance=_number(pynvml.nvmlDeviceGetComputeInstanceId, handle) if is_instance else None,
    )


def _pci_bus_id(handle: Any) -> str:
    bus_id: bytes | str = pynvml.nvmlDeviceGetPciInfo(handle).busId
    return bus_id.decode() if isinstance(bus_id, bytes) else bus_id


def _memory(*question: Any, **options: Any) -> Told:
    """The answer of one of the two versions of NVML's question; only the second tells apart what the driver keeps."""
    answer = _call(*question, **options)
    reserved = getattr(answer, "reserved", None)
    return memory_told(answer.total, answer.used, answer.free, reserved)


class _ProcessV1(ctypes.Structure):
    """nvmlProcessInfo_v1_t, which nvidia-ml-py no longer has."""

    _fields_ = (("pid", ctypes.c_uint), ("usedGpuMemory", ctypes.c_ulonglong))


def _listed(kind: str, handle: Any) -> list[tuple[int, int | None]]:
    """Process and use of each entry of one of NVML's lists, by the newest version that the library has.

    Raises NvmlError. nvidia-ml-py's own unversioned call does not go back to what older drivers have
    (https://github.com/gpuopenanalytics/pynvml/issues/43).
    """
    name = f"nvmlDeviceGet{kind}RunningProcesses"
    versions = [getattr(pynvml, f"{name}{version}", None) for version in ("_v3", "_v2")]
    readers = [each for each in versions if each is not None]
    for reader in (*readers, lambda handle: _listed_v1(name, handle)):
        try:
            entries = _tried(reader, handle)
        except NvmlError as error:
            if error.code != pynvml.NVML_ERROR_FUNCTION_NOT_FOUND:
                raise
            missing = error
            continue
        return [(int(entry.pid), entry.usedGpuMemory) for entry in entries]
    raise missing


def _tried(reader: Callable[..., Any], handle: Any) -> Any:
    """The answer of a list, which fails while processes come faster than it is made longer."""
    for _ in range(SIZE_TRIES - 1):
        try:
            return _call(reader, handle)
        except NvmlError as error:
            if error.code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE:
                raise
    return _call(reader, handle)


def _listed_v1(name: str, handle: Any) -> list[_ProcessV1]:
    try:
        function = getattr(pynvml.nvmlLib, name)
    except AttributeError:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND) from None
    room = 0
    while True:
        count = ctypes.c_uint(room)
        entries = (_ProcessV1 * room)()
        code = function(handle, ctypes.byref(count), entries if room else None)
        if code == pynvml.NVML_SUCCESS:
            return list(entries[: count.value])
        if code != pynvml.NVML_ERROR_INSUFFICIENT_SIZE or count.value <= room:
            raise pynvml.NVMLError(code)
        room = count.value * 2

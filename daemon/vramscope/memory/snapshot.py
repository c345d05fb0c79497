"""Immutable pictures of memory, taken by the worker and read by everybody else. All sizes are bytes."""

from dataclasses import dataclass, field
from enum import StrEnum

from vramscope.events import Event
from vramscope.units import format_bytes

# Where tensors are that are on no device, and where those of a model are that are in several places.
HOST, MIXED = "cpu", "mixed"


class Residency(StrEnum):
    """Where the tensors of a model are, as a whole."""

    ABSENT = "absent"
    HOST = "host"
    DEVICE = "device"
    MIXED = "mixed"
    FAILED = "failed"


@dataclass(frozen=True, kw_only=True)
class ParameterGroup:
    """The parameters of one model that share component, dtype and device; tied parameters are counted once."""

    component: str
    dtype: str
    device: str
    parameters: int
    nbytes: int


@dataclass(frozen=True, kw_only=True)
class ModelSnapshot:
    """One loaded model: what it is, and where its tensors live. `buffer_bytes` maps device to bytes.

    `tensors` counts its parameters' and buffers' tensors, tied ones once; None is unknown.
    """

    model: str
    residency: Residency
    architecture: str
    dtype: str
    quantization: str
    revision: str
    groups: tuple[ParameterGroup, ...] = ()
    buffer_bytes: dict[str, int] = field(default_factory=dict)
    file_bytes: int | None = None
    file_elements: int | None = None
    context_window_tokens: int | None = None
    tensors: int | None = None

    @property
    def parameters(self) -> int:
        return sum(group.parameters for group in self.groups)

    @property
    def parameter_bytes(self) -> int:
        return sum(group.nbytes for group in self.groups)

    @property
    def places(self) -> dict[str, int]:
        """Bytes of parameters and buffers by device, cpu first."""
        devices = {*(group.device for group in self.groups), *self.buffer_bytes}
        return {device: sum(self.bytes_on(device)) for device in sorted(devices, key=device_order)}

    @property
    def whereabouts(self) -> str:
        """Where it lives: `cuda:0`, or `mixed: 180.2 MiB cpu, 770.0 MiB cuda:0`; its state for one without tensors."""
        if self.residency is not Residency.MIXED:
            return next(iter(self.places), self.residency.value)
        return "mixed: " + ", ".join(f"{format_bytes(nbytes)} {device}" for device, nbytes in self.places.items())

    def bytes_on(self, device: str) -> tuple[int, int]:
        """Bytes of this model's parameters and of its buffers on `device`."""
        parameters = sum(group.nbytes for group in self.groups if group.device == device)
        return parameters, self.buffer_bytes.get(device, 0)


# How the use of our own process is known: the driver lists it, lists it under its number in another PID namespace, or
# does not, and the worker measured its context.
DRIVER = "driver"
NAMESPACE = "namespace"
MEASURED = "measured"


@dataclass(frozen=True, kw_only=True)
class DriverMemory:
    """What the driver says about a device, in NVML's sense. None is unknown; unknown is never written as 0.

    `process_used_source` is DRIVER, NAMESPACE or MEASURED, empty where `process_used_bytes` is unknown.
    """

    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    reserved_bytes: int | None = None
    process_used_bytes: int | None = None
    process_used_source: str = ""


@dataclass(frozen=True, kw_only=True)
class AllocatorMemory:
    """What torch's caching allocator says about a device (see torch.cuda.memory_stats for the terms)."""

    allocated_bytes: int = 0
    reserved_bytes: int = 0
    requested_bytes: int = 0
    active_bytes: int = 0
    inactive_split_bytes: int = 0
    allocated_peak_bytes: int = 0
    reserved_peak_bytes: int = 0
    alloc_retries: int = 0
    ooms: int = 0


@dataclass(frozen=True, kw_only=True)
class DeviceSnapshot:
    """One device as the worker sees it; `driver` is what the driver says at that moment, None where it does not.

    `is_open` says whether this process has a context on the device.
    """

    device: str
    backend: str
    allocator: AllocatorMemory
    driver: DriverMemory | None = None
    is_open: bool = True


@dataclass(frozen=True, kw_only=True)
class DeviceFacts:
    """What does not change about a device.

    `backend` is "cuda", "simulated", or "nvml" where only the driver tells of it. `nvml_index` is NVML's: "3", and
    "3:0" for the first MIG instance of GPU 3; empty where it is not known.
    """

    device: str
    backend: str
    name: str
    uuid: str = ""
    pci_bus_id: str = ""
    total_bytes: int | None = None
    nvml_index: str = ""


def device_order(device: str) -> tuple[tuple[bool, int, str], ...]:
    """A key that sorts device names as people count: nvml:2 before nvml:10."""
    return tuple((part.isdecimal(), int(part) if part.isdecimal() else 0, part) for part in device.split(":"))


@dataclass(frozen=True, kw_only=True)
class ResidentMemory:
    """Memory of one process in RAM (Linux: RssAnon, RssFile + RssShmem, VmSwap, VmHWM of /proc/PID/status)."""

    anonymous_bytes: int
    file_bytes: int
    swap_bytes: int | None
    peak_bytes: int

    @property
    def total_bytes(self) -> int:
        return self.anonymous_bytes + self.file_bytes


@dataclass(frozen=True, kw_only=True)
class MemorySampled(Event):
    """A snapshot of everything that the worker holds, taken between two steps or during a wait."""

    devices: tuple[DeviceSnapshot, ...]
    models: tuple[ModelSnapshot, ...]
    resident: ResidentMemory | None = None


@dataclass(frozen=True, kw_only=True)
class ResidentSampled(Event):
    """What the worker's process holds in RAM, seen from outside."""

    resident: ResidentMemory


@dataclass(frozen=True, kw_only=True)
class WorkerReady(Event):
    """The worker has imported torch and chosen its devices; `reason` says why this backend."""

    pid: int
    backend: str
    reason: str
    versions: dict[str, str]
    devices: tuple[DeviceFacts, ...]
    import_seconds: float


@dataclass(frozen=True, kw_only=True)
class DriverSampled(Event):
    """What NVML answered for each device that it lists, CUDA devices of the worker `pid` (0: none) by their CUDA name.

    `at` is when it was asked, so the answer is no older. `errors` maps device to what is not known of it and why; a
    device that is also in `devices` answered in part. `answered_at` is when each device answered last, and stays while
    it does not. `high_water_bytes` is the highest use of the last minute. `driver_version` is empty where unknown.
    """

    pid: int
    devices: dict[str, DriverMemory]
    errors: dict[str, str] = field(default_factory=dict)
    cards: tuple[DeviceFacts, ...] = ()
    answered_at: dict[str, float] = field(default_factory=dict)
    high_water_bytes: dict[str, int] = field(default_factory=dict)
    driver_version: str = ""

"""The run as one immutable value, for the page and the metrics to read."""

from dataclasses import dataclass, field

from vramscope.events import Fact, JournalSampled, Outcome
from vramscope.forecast.predict import DeviceLevels
from vramscope.memory.host import HostMemory
from vramscope.memory.ledger import ledger
from vramscope.memory.residue import Residue
from vramscope.memory.snapshot import DeviceFacts, DeviceSnapshot, DriverMemory, ModelSnapshot, ResidentMemory


@dataclass(frozen=True, kw_only=True)
class RunningStep:
    """The step that runs now. `bytes_total` is None while its phase does not count bytes."""

    step: str
    kind: str
    model: str
    line: int
    started_at: float
    changes_memory: bool = False
    phase: str = ""
    bytes_done: int = 0
    bytes_total: int | None = None


@dataclass(frozen=True, kw_only=True)
class LastStep:
    """The last finished run of one step of the plan."""

    step: str
    kind: str
    model: str
    outcome: Outcome
    seconds: float
    ended_at: float
    error: str = ""
    facts: dict[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class LastPhase:
    """The last finished run of one phase of a model's load or move. `nbytes` is None where bytes mean nothing."""

    model: str
    kind: str
    phase: str
    seconds: float
    nbytes: int | None


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that went wrong, for the page; the log has it too."""

    at: float
    what: str
    detail: str


@dataclass(frozen=True, kw_only=True)
class Account:
    """What allocator and driver said about one device at moments between which nothing changed."""

    device: DeviceSnapshot
    driver: DriverMemory
    models: tuple[ModelSnapshot, ...]

    def ledger(self) -> dict[str, int] | None:
        """Owner to bytes; None where there is none, see memory/ledger.py."""
        return ledger(self.device, self.driver, self.models)

    def holds(self, device: DeviceSnapshot, models: tuple[ModelSnapshot, ...]) -> bool:
        """Whether the worker holds now what it held then."""
        then, now = self.device.allocator, device.allocator
        same = (then.allocated_bytes, then.reserved_bytes) == (now.allocated_bytes, now.reserved_bytes)
        return same and self.device.is_open == device.is_open and self.models == models


@dataclass(frozen=True, kw_only=True)
class WorkerState:
    """What is known about the worker process. Versions and devices stay when it dies; `up` says whether it lives."""

    pid: int | None = None
    up: bool = False
    backend: str = ""
    reason: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    devices: tuple[DeviceFacts, ...] = ()


@dataclass(frozen=True, kw_only=True)
class PlanState:
    """The plan that runs and how far it is. `cycles` None is forever; `outcome` is None while it runs.

    `next_cycle_at`, in seconds since the epoch, is known between two cycles only.
    """

    name: str = ""
    sha256: str = ""
    path: str = ""
    cycles: int | None = None
    cycle: int = 0
    cycle_running: bool = False
    outcome: Outcome | None = None
    next_cycle_at: float | None = None
    last_cycle_seconds: float | None = None
    last_success_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class ReloadState:
    """How the last reading of the plan file went, the first one included. `problem` is empty where it went well.

    `succeeded_at` is when it last went well.
    """

    problem: str = ""
    succeeded_at: float | None = None


@dataclass(frozen=True, kw_only=True)
class RunState:
    """Everything that readers may want to know, at one moment.

    `devices` and `models` are what the worker reported last and are empty while there is no worker: what is not known
    now is not shown as if it were. `driver` maps device to NVML's answer and holds simulated devices too;
    `driver_errors` says what NVML does not tell of a device, and why. `cards` are the devices that NVML lists.
    `residues` is what each model left behind last; `levels` maps model and place to what was held there after its last
    unloads in this worker, oldest first. `journal` is None where none is written. `web_config_problem` is None without
    a web configuration, and empty while all is well with it.
    """

    started_at: float
    plan: PlanState = PlanState()
    reload: ReloadState = ReloadState()
    web_config_problem: str | None = None
    worker: WorkerState = WorkerState()
    running: RunningStep | None = None
    devices: tuple[DeviceSnapshot, ...] = ()
    models: tuple[ModelSnapshot, ...] = ()
    driver: dict[str, DriverMemory] = field(default_factory=dict)
    driver_errors: dict[str, str] = field(default_factory=dict)
    driver_answered_at: dict[str, float] = field(default_factory=dict)
    driver_high_water_bytes: dict[str, int] = field(default_factory=dict)
    cards: tuple[DeviceFacts, ...] = ()
    accounts: dict[str, Account] = field(default_factory=dict)
    sampled_at: float = 0.0
    worker_resident: ResidentMemory | None = None
    host: HostMemory = field(default_factory=HostMemory)
    host_oom_kills: int | None = None
    last_steps: dict[str, LastStep] = field(default_factory=dict)
    last_phases: dict[tuple[str, str, str], LastPhase] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()
    forecast: dict[str, DeviceLevels] = field(default_factory=dict)
    forecast_error_bytes: dict[tuple[str, str], int] = field(default_factory=dict)
    forecast_lost: str = ""
    residues: dict[str, Residue] = field(default_factory=dict)
    levels: dict[tuple[str, str], tuple[int, ...]] = field(default_factory=dict)
    journal: JournalSampled | None = None

    @property
    def is_memory_changing(self) -> bool:
        """Whether a step is under way that takes or gives back memory."""
        return self.running is not None and self.running.changes_memory

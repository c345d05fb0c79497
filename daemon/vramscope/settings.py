"""What the command line settles for a run, as values that are passed in; nothing reads the environment by itself."""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from urllib.parse import urlsplit

MIB = 1 << 20

_TRUE = frozenset({"1", "ON", "YES", "TRUE"})
ADDRESS_ADVICE = "set it to an address that begins with https://, or unset it"

# Where control groups, and the process file system, are mounted.
CGROUP_ROOT = Path("/sys/fs/cgroup")
PROC_ROOT = Path("/proc")

# The published picture of Qwen2.5-0.5B on an RTX 3060: 12 GiB, and 113 MiB of CUDA context (1105 - 992 MiB).
DEFAULT_CAPACITY_BYTES = 12_288 * MIB
DEFAULT_CONTEXT_BYTES = 113 * MIB
# What a PCIe 4.0 x16 slot moves in practice from pageable memory; it only paces the simulated copies.
DEFAULT_BANDWIDTH_BYTES_PER_SECOND = 12 << 30


class DeviceMode(StrEnum):
    """Which devices a run uses."""

    AUTO = "auto"
    CUDA = "cuda"
    SIMULATED = "simulated"


@dataclass(frozen=True, kw_only=True)
class SimulationSettings:
    """The simulated devices: capacity by device name, and what each takes for its context and other processes."""

    capacity_bytes: Mapping[str, int] = field(default_factory=lambda: {"cuda:0": DEFAULT_CAPACITY_BYTES})
    context_bytes: int = DEFAULT_CONTEXT_BYTES
    other_bytes: int = 0
    bandwidth_bytes_per_second: int = DEFAULT_BANDWIDTH_BYTES_PER_SECOND


@dataclass(frozen=True, kw_only=True)
class WorkerSettings:
    """What a worker process is started with. The limits of its memory are looked up below the two roots.

    `forbidden` is why nothing can be downloaded even where the plan wants it, "" where it can. `first_source` is the
    model that is loaded first, whose files are read while the worker imports; "" is none.
    """

    device_mode: DeviceMode = DeviceMode.AUTO
    simulation: SimulationSettings = SimulationSettings()
    cache: Path
    hub_cache: Path
    forbidden: str = ""
    cgroup_root: Path = CGROUP_ROOT
    proc_root: Path = PROC_ROOT
    first_source: str = ""
    first_revision: str = "main"


@dataclass(frozen=True, kw_only=True)
class Deadlines:
    """How long the supervisor waits for its worker, in seconds, before it takes the next harder measure."""

    ready: float = 120.0
    heartbeat: float = 30.0
    cancel: float = 2.0
    shutdown: float = 1.0
    terminate: float = 1.0
    kill: float = 3.0
    describe: float = 120.0
    restart_backoff: float = 0.5
    restart_backoff_limit: float = 30.0


def default_cache(environment: Mapping[str, str]) -> Path:
    """Where synthetic checkpoints are kept: $VRAMSCOPE_CACHE, else vramscope under the XDG cache directory."""
    if chosen := environment.get("VRAMSCOPE_CACHE"):
        return Path(chosen)
    return Path(environment.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "vramscope"


def default_hub_cache(environment: Mapping[str, str]) -> Path:
    """The Hugging Face hub cache, by huggingface_hub's own rule: HF_HUB_CACHE, then HF_HOME/hub, then the XDG cache."""
    if chosen := environment.get("HF_HUB_CACHE"):
        return Path(chosen)
    xdg = Path(environment.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    return Path(environment.get("HF_HOME") or xdg / "huggingface") / "hub"


def is_offline(environment: Mapping[str, str]) -> bool:
    """Whether the environment forbids the use of the hub, by huggingface_hub's own rule."""
    return (environment.get("HF_HUB_OFFLINE") or environment.get("TRANSFORMERS_OFFLINE") or "").upper() in _TRUE


def hub_address(text: str) -> str:
    """The address of a hub without the user and password that it may carry, to be shown; empty where it is none."""
    try:
        parts = urlsplit(text)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            return ""
    except ValueError:
        return ""
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")


def odd_endpoint(environment: Mapping[str, str]) -> str:
    """What is wrong with HF_ENDPOINT, as a clause; empty where it is an address, or not set."""
    told = environment.get("HF_ENDPOINT", "")
    return "" if not told or hub_address(told) else f"HF_ENDPOINT={told.rpartition('@')[2]} is no address"


def forbidden_downloads(environment: Mapping[str, str]) -> str:
    """Why nothing can be downloaded, and what to do about it; empty where it can."""
    if is_offline(environment):
        return "HF_HUB_OFFLINE forbids the download: unset it, or bring the files some other way"
    odd = odd_endpoint(environment)
    return f"{odd}: {ADDRESS_ADVICE}" if odd else ""


def stay_offline(environment: MutableMapping[str, str]) -> None:
    """Keep huggingface_hub in this process from the network; to be called before it is imported.

    An HF_ENDPOINT that is no address goes, as the library's import could fail of it (huggingface_hub.constants).
    """
    environment["HF_HUB_OFFLINE"] = "1"
    if not hub_address(environment.get("HF_ENDPOINT", "")):
        environment.pop("HF_ENDPOINT", None)

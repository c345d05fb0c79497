"""Our own use of a device: which entries of the driver's list are ours, and what to believe of them.

A process in a container has another number than the one that the driver may tell
(https://github.com/NVIDIA/gpu-monitoring-tools/issues/63). All sizes are bytes.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from vramscope.memory.snapshot import DRIVER, MEASURED, NAMESPACE, DeviceSnapshot, DriverMemory
from vramscope.settings import PROC_ROOT

# Where a container finds the host's process file system, if it is mounted at all; and the variable that says so.
HOST_PROC = Path("/host/proc")
HOST_PROC_VARIABLE = "VRAMSCOPE_HOST_PROC"


@dataclass(frozen=True, kw_only=True)
class ProcessNames:
    """Tells which of our processes a number is that the driver lists. `host_proc` is the host's /proc, if mounted."""

    proc: Path = PROC_ROOT
    host_proc: Path = HOST_PROC

    def ours(self, listed: int, pids: Collection[int]) -> str:
        """How `listed` is known to be one of `pids`, which are of this namespace; empty if it is none of them.

        Where the host tells about the listed process, its word counts: by NSpid, the process's numbers in all
        namespaces from the outermost to its own (proc(5)), and by that namespace being ours. A number that is ours only
        by chance is then not taken for us.
        """
        inner = self._inner_pid(listed)
        if inner is None:
            return DRIVER if listed in pids else ""
        if inner not in pids or not self._shares_namespace(listed):
            return ""
        return DRIVER if inner == listed else NAMESPACE

    def _inner_pid(self, listed: int) -> int | None:
        """The number of a process of the host in its own namespace; None where the host is not seen."""
        try:
            text = (self.host_proc / str(listed) / "status").read_text(encoding="ascii", errors="replace")
        except OSError:
            return None
        numbers = next((line.split()[1:] for line in text.splitlines() if line.startswith("NSpid:")), [])
        return int(numbers[-1]) if numbers and numbers[-1].isdecimal() else None

    def _shares_namespace(self, listed: int) -> bool:
        try:
            theirs = (self.host_proc / str(listed) / "ns/pid").readlink()
            return theirs == (self.proc / "self/ns/pid").readlink()
        except OSError:
            return False


def process_names(environment: Mapping[str, str]) -> ProcessNames:
    """The names of processes on this machine, with the host's /proc where the environment says it is."""
    return ProcessNames(host_proc=Path(environment.get(HOST_PROC_VARIABLE) or HOST_PROC))


def own_use(used: Mapping[int, int | None], pids: Collection[int], names: ProcessNames) -> tuple[int | None, str]:
    """What our processes use of a device together, and how that is known; None where the driver does not tell it."""
    ours = {listed: source for listed in used if (source := names.ours(listed, pids))}
    sizes = [used[listed] for listed in ours]
    known = [size for size in sizes if size is not None]
    if not known or len(known) < len(sizes):
        return None, ""
    return sum(known), NAMESPACE if NAMESPACE in ours.values() else DRIVER


def context_taken(before: DriverMemory | None, after: DriverMemory | None) -> int | None:
    """What opening a context took of a device, by what the driver said before and after it; None where it said less.

    What another process took or gave back in that moment is in it.
    """
    if before is None or after is None or before.used_bytes is None or after.used_bytes is None:
        return None
    taken = after.used_bytes - before.used_bytes
    return taken if taken > 0 else None


def settled(driver: DriverMemory, reserved_bytes: int, context_bytes: int | None, *, is_open: bool) -> DriverMemory:
    """The driver's account with as much of the own use as can be believed.

    A process without a context is on no list, and one that is listed uses no less than its allocator has reserved:
    another process that has our number by chance does not pass. Where the driver tells nothing, own use is what the
    context took when it was opened, `context_bytes`, and what the allocator has reserved, and is called measured.
    """
    own = driver.process_used_bytes
    if is_open and own is not None and own >= reserved_bytes:
        return driver
    if is_open and context_bytes is not None:
        return replace(driver, process_used_bytes=context_bytes + reserved_bytes, process_used_source=MEASURED)
    return replace(driver, process_used_bytes=None, process_used_source="")


def settled_with(driver: DriverMemory, held: DeviceSnapshot) -> DriverMemory:
    """As `settled`, with what the worker told about the device last."""
    reserved = held.allocator.reserved_bytes
    last = held.driver
    context = None
    if last is not None and last.process_used_source == MEASURED and last.process_used_bytes is not None:
        context = last.process_used_bytes - reserved
    return settled(driver, reserved, context, is_open=held.is_open)

"""The host's memory as the kernel and the control groups tell it.

A process may use what the host has, and no more than its own control group and every group above it allow. The use of a
group is counted without the page cache that the kernel takes back first (usage minus inactive_file, which the kubelet
calls the working set). Swap is not counted. memory.high is no limit: above it a group is slowed down, not stopped.

A file that is not there limits nothing; one that is there and cannot be understood makes the answer unknown. See
docs.kernel.org: admin-guide/cgroup-v2 and admin-guide/cgroup-v1/memory.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vramscope.events import Event
from vramscope.settings import CGROUP_ROOT, PROC_ROOT

# Version 1 says "no limit" with the largest number of whole pages, which depends on their size.
NO_LIMIT_BYTES = 1 << 62


@dataclass(frozen=True, kw_only=True)
class HostMemory:
    """How much RAM this process may use at most, and how much of that is left, in bytes; None is unknown."""

    limit_bytes: int | None = None
    available_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class HostSampled(Event):
    """What this process may use of the host's memory, and how many of its control group were killed for want of it."""

    memory: HostMemory
    oom_kills: int | None = None


def read_host(root: Path = CGROUP_ROOT, proc: Path = PROC_ROOT) -> HostMemory:
    """What this process may use: the smallest of the host's memory and the limits of its control groups.

    `root` is where control groups are mounted, `proc` has meminfo and self/cgroup. What is available is the least that
    any of them has left.
    """
    try:
        meminfo = _text(proc / "meminfo") or ""
        total = _kibibytes(meminfo, "MemTotal:")
        no_limit = NO_LIMIT_BYTES if total is None else total
        limits = {group: limit for group in _lineage(root, proc) if (limit := group.limit_bytes()) < no_limit}
    except (OSError, ValueError):
        return HostMemory()
    limit_bytes = min(limits.values(), default=total)
    try:
        left = [max(0, limit - group.working_set_bytes()) for group, limit in limits.items()]
        available = _kibibytes(meminfo, "MemAvailable:")
    except (OSError, ValueError):
        return HostMemory(limit_bytes=limit_bytes)
    return HostMemory(
        limit_bytes=limit_bytes, available_bytes=min(left if available is None else [available, *left], default=None)
    )


def oom_kills(root: Path = CGROUP_ROOT, proc: Path = PROC_ROOT) -> int | None:
    """How many processes of our control group the kernel's OOM killer took so far; None where nobody counts."""
    try:
        own = next(_lineage(root, proc), None)
        return own.oom_kills() if own else None
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, kw_only=True)
class _Version:
    """What a version of control groups calls its files, and the page cache that is taken back first."""

    limit: str
    usage: str
    events: str
    inactive: str


_V1 = _Version(
    limit="memory.limit_in_bytes",
    usage="memory.usage_in_bytes",
    events="memory.oom_control",
    inactive="total_inactive_file",
)
_V2 = _Version(limit="memory.max", usage="memory.current", events="memory.events", inactive="inactive_file")


@dataclass(frozen=True)
class _Group:
    """One control group. Its methods raise OSError and ValueError for what cannot be read or understood."""

    directory: Path
    version: _Version
    is_own: bool

    def limit_bytes(self) -> int:
        """The limit; NO_LIMIT_BYTES or more where there is none."""
        text = _text(self.directory / self.version.limit)
        limit = NO_LIMIT_BYTES if text in (None, "max") else _number(text)
        if self.version is _V1 and self.is_own:
            # Groups above the mount limit too and cannot be seen, but their smallest limit is told here.
            hierarchical = _counter(_text(self.directory / "memory.stat") or "", "hierarchical_memory_limit")
            return limit if hierarchical is None else min(limit, hierarchical)
        return limit

    def working_set_bytes(self) -> int:
        usage = _number(_text(self.directory / self.version.usage))
        inactive = _counter(_text(self.directory / "memory.stat") or "", self.version.inactive)
        if inactive is None:
            raise ValueError(f"{self.directory}: memory.stat does not tell {self.version.inactive}")
        return max(0, usage - inactive)  # the two are read one after the other

    def oom_kills(self) -> int | None:
        return _counter(_text(self.directory / self.version.events) or "", "oom_kill")


def _lineage(root: Path, proc: Path) -> Iterator[_Group]:
    """Our own memory control group, then each one above it, up to the mount's root; none where none is mounted.

    Raises OSError and ValueError.
    """
    found = _mounted(root, _text(proc / "self/cgroup") or "")
    if found is None:
        return
    version, mount, path = found
    parts = [part for part in path.split("/") if part]
    if ".." in parts:
        raise ValueError(f"our control group {path} is outside of what is mounted at {mount}")
    # A container may see its own group at the mount's root, under a path that only the host has.
    while not mount.joinpath(*parts).is_dir():
        parts = parts[1:]
    for depth in range(len(parts), -1, -1):
        directory = mount.joinpath(*parts[:depth])
        is_own = depth == len(parts)
        if not is_own and _text(directory / "memory.use_hierarchy") == "0":
            return  # version 1 before Linux 5.11: this group does not count those below it
        yield _Group(directory, version, is_own)


def _mounted(root: Path, memberships: str) -> tuple[_Version, Path, str] | None:
    """The version that has the memory controller, where it is mounted, and our group's path (cgroups(7)).

    A line reads `4:memory:/path` in version 1 and `0::/path` in version 2; a controller is in one of the two only.
    """
    unified: tuple[_Version, Path, str] | None = None
    for line in memberships.splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            for mount in (root / "memory", root / controllers):
                if mount.is_dir():
                    return _V1, mount, path
        elif not controllers:
            is_hybrid = not (root / "cgroup.controllers").exists() and (root / "unified").is_dir()
            unified = _V2, root / "unified" if is_hybrid else root, path
    return unified if unified and unified[1].is_dir() else None


def _text(path: Path) -> str | None:
    """What a file says; None where there is no such file. Raises OSError."""
    try:
        return os.fsdecode(path.read_bytes()).strip()
    except FileNotFoundError:
        return None


def _number(text: str | None) -> int:
    """A whole number of bytes. Raises ValueError for anything else."""
    if text is None or not (text.isascii() and text.isdigit()):
        raise ValueError(f"expected a number, got {text!r}")
    return int(text)


def _counter(text: str, name: str) -> int | None:
    """A counter out of lines of `name value`; None where it is not among them. Raises ValueError."""
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            return _number(value.strip())
    return None


def _kibibytes(meminfo: str, name: str) -> int | None:
    """Bytes of a line of /proc/meminfo, which counts in kB of 1,024 bytes. Raises ValueError."""
    for line in meminfo.splitlines():
        match line.split():
            case [key, amount, "kB"] if key == name:
                return _number(amount) * 1024
            case [key, *_] if key == name:
                raise ValueError(f"expected a size in kB, got {line!r}")
    return None

"""Trees of files as the kernel shows them: control groups and /proc."""

from collections.abc import Mapping
from pathlib import Path

MEMINFO = "MemTotal:       16350464 kB\nMemFree:         123456 kB\nMemAvailable:    9000000 kB\n"


def write(directory: Path, files: Mapping[str, str]) -> Path:
    """Write files below a directory, each ending its text with a line's end as the kernel does."""
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n" if text else "")
    return directory


class Tree:
    """A machine's `root` of control groups and `proc`; this process is in the groups that `cgroup` says."""

    def __init__(self, directory: Path, cgroup: str, meminfo: str = MEMINFO) -> None:
        self.root = write(directory / "sys/fs/cgroup", {})
        self.proc = write(directory / "proc", {"self/cgroup": cgroup, "meminfo": meminfo})
        self.root.mkdir(parents=True)

    @property
    def places(self) -> tuple[Path, Path]:
        return self.root, self.proc

    def v2(self, path: str, limit: str, current: str | None = None, inactive: str = "0") -> "Tree":
        files = {"cgroup.controllers": "cpu memory", f"{path}/memory.max".strip("/"): limit}
        return self._group(files, path, {"memory.current": current, "memory.stat": f"anon 1\ninactive_file {inactive}"})

    def v1(self, path: str, limit: str, usage: str | None = None, stat: str = "total_inactive_file 0") -> "Tree":
        path = f"memory/{path}"
        return self._group(
            {f"{path}/memory.limit_in_bytes": limit}, path, {"memory.usage_in_bytes": usage, "memory.stat": stat}
        )

    def _group(self, files: dict[str, str], path: str, counters: Mapping[str, str | None]) -> "Tree":
        for name, text in counters.items():
            if text is not None:
                files[f"{path}/{name}".strip("/")] = text
        write(self.root, files)
        return self


def limited_root(directory: Path, limit_bytes: int, used_bytes: int = 0) -> Path:
    """Control groups, of either version, in which whoever looks finds itself in one group with this limit."""
    version_1 = {"memory.limit_in_bytes": limit_bytes, "memory.usage_in_bytes": used_bytes}
    version_2 = {"memory.max": limit_bytes, "memory.current": used_bytes}
    stat = {"memory.stat": "inactive_file 0\ntotal_inactive_file 0"}
    for place, numbers in (("", version_2), ("unified/", version_2), ("memory/", version_1)):
        write(directory, {place + name: str(text) for name, text in (numbers | stat).items()})
    return directory

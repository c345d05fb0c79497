"""The host's memory as the kernel and the control group tell it."""

from pathlib import Path

CGROUP_ROOT = Path("/sys/fs/cgroup")


def oom_kills(root: Path = CGROUP_ROOT, proc: Path = Path("/proc")) -> int | None:
    """How many processes of our control group the kernel's OOM killer took so far; None where nobody counts.

    cgroup v2 counts in memory.events of the process's own group (docs.kernel.org, admin-guide/cgroup-v2).
    """
    try:
        line = next(line for line in (proc / "self/cgroup").read_text().splitlines() if line.startswith("0::"))
        events = root / line.removeprefix("0::").lstrip("/") / "memory.events"
        counters = dict(entry.split() for entry in events.read_text().splitlines())
        return int(counters["oom_kill"])
    except (OSError, StopIteration, KeyError, ValueError):
        return None

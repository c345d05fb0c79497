"""What a process holds in RAM, by /proc/PID/status (proc(5)); None where the system does not tell."""

from pathlib import Path

from vramscope.memory.snapshot import ResidentMemory

_FIELDS = ("RssAnon", "RssFile", "RssShmem", "VmSwap", "VmHWM")


def read_resident(pid: int | None = None, proc: Path = Path("/proc")) -> ResidentMemory | None:
    """RAM of a process (None: this one). The kernel counts in kB of 1,024 bytes and may be off by a few pages."""
    try:
        text = (proc / ("self" if pid is None else str(pid)) / "status").read_text()
    except OSError:
        return None
    sizes: dict[str, int] = {}
    for line in text.splitlines():
        key, _, rest = line.partition(":")
        if key in _FIELDS and rest.split()[1:] == ["kB"]:
            sizes[key] = int(rest.split()[0]) * 1024
    if not {"RssAnon", "RssFile", "VmHWM"} <= sizes.keys():
        return None
    return ResidentMemory(
        anonymous_bytes=sizes["RssAnon"],
        file_bytes=sizes["RssFile"] + sizes.get("RssShmem", 0),
        swap_bytes=sizes.get("VmSwap", 0),
        peak_bytes=sizes["VmHWM"],
    )

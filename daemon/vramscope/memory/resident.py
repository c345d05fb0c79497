"""What a process holds in RAM, by /proc/PID/status (proc(5)); None where the system does not tell."""

from pathlib import Path

from vramscope.memory.snapshot import ResidentMemory

PROC = Path("/proc")
_FIELDS = ("RssAnon", "RssFile", "RssShmem", "VmSwap", "VmHWM")


def read_resident(pid: int | None = None, proc: Path = PROC) -> ResidentMemory | None:
    """RAM of a process (None: this one). The kernel counts in kB of 1,024 bytes and may be off by a few pages."""
    try:
        text = (proc / ("self" if pid is None else str(pid)) / "status").read_bytes().decode("ascii", "replace")
    except OSError:
        return None
    sizes: dict[str, int] = {}
    for line in text.splitlines():
        key, _, rest = line.partition(":")
        if key in _FIELDS:
            match rest.split():
                case [amount, "kB"] if amount.isascii() and amount.isdigit():
                    sizes[key] = int(amount) * 1024
                case _:
                    return None
    if not {"RssAnon", "RssFile", "VmHWM"} <= sizes.keys():
        return None
    return ResidentMemory(
        anonymous_bytes=sizes["RssAnon"],
        file_bytes=sizes["RssFile"] + sizes.get("RssShmem", 0),
        swap_bytes=sizes.get("VmSwap"),
        peak_bytes=sizes["VmHWM"],
    )


def reset_peak(proc: Path = PROC) -> bool:
    """Let this process's peak begin anew from what it holds now; False where the kernel does not allow it.

    Writing 5 to clear_refs resets VmHWM (proc(5), since Linux 4.0). Kernels without CONFIG_PROC_PAGE_MONITOR and some
    sandboxes have no such file; the peak then is that of the whole life of the process.
    """
    try:
        (proc / "self/clear_refs").write_bytes(b"5")
    except OSError:
        return False
    return True

"""What a process holds in RAM, by /proc/PID/status (proc(5)); None where the system does not tell."""

from pathlib import Path

from vramscope.memory.snapshot import ResidentMemory
from vramscope.settings import PROC_ROOT

_FIELDS = ("RssAnon", "RssFile", "RssShmem", "VmSwap", "VmHWM")


def read_resident(pid: int | None = None, proc: Path = PROC_ROOT) -> ResidentMemory | None:
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


def reset_peak(proc: Path = PROC_ROOT) -> bool:
    """Let this process's peak begin anew from what it holds now; False where the kernel does not allow it.

    Writing 5 to clear_refs resets VmHWM (proc(5), since Linux 4.0). Kernels without CONFIG_PROC_PAGE_MONITOR and some
    sandboxes have no such file; the peak then is that of the whole life of the process.
    """
    try:
        (proc / "self/clear_refs").write_bytes(b"5")
    except OSError:
        return False
    return True


class Peak:
    """The most RAM that this process held since `begin`.

    Where the kernel keeps one peak for the whole life of the process, that is what was seen by `look`, which is to be
    called often, unless a higher one was reached meanwhile.
    """

    def __init__(self, proc: Path = PROC_ROOT) -> None:
        self._proc = proc
        self._before_bytes: int | None = None
        self._seen_bytes = 0

    def begin(self) -> None:
        is_anew = reset_peak(self._proc)
        held = read_resident(proc=self._proc)
        self._before_bytes = None if is_anew or held is None else held.peak_bytes
        self._seen_bytes = held.total_bytes if held else 0

    def look(self) -> None:
        if self._before_bytes is not None and (held := read_resident(proc=self._proc)) is not None:
            self._seen_bytes = max(self._seen_bytes, held.total_bytes)

    @property
    def nbytes(self) -> int | None:
        """The peak until now, in bytes; None where the system does not tell."""
        self.look()
        held = read_resident(proc=self._proc)
        if held is None:
            return None
        if self._before_bytes is None or held.peak_bytes > self._before_bytes:
            return held.peak_bytes
        return self._seen_bytes

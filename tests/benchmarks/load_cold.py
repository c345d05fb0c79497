"""Time of a load from the disk: `python tests/benchmarks/load_cold.py`.

Before each load the checkpoint of Qwen2.5-0.5B's size is dropped from the page cache. What no load can beat is to read
the file past the page cache (O_DIRECT) with four requests in flight, into memory that is there. All take turns, in one
process. Quote the ratios: what the disk gives changes from minute to minute.
"""

import argparse
import itertools
import mmap
import os
import threading
import time
from pathlib import Path

import torch
from figures import Spread, checkpoint_directory, say, say_table, write_json
from load_qwen import DTYPES, LOADS, Case, timed

from vramscope.loading.assemble import quiet_transformers
from vramscope.loading.page_cache import page_cache_share

REQUESTS = 4
REQUEST_BYTES = 4 << 20
STILL_CACHED_SHARE = 0.01
LIMIT_SECONDS = 90.0
CASES: tuple[Case, ...] = tuple((name, dtype) for dtype in DTYPES for name in ("vramscope", "from_pretrained"))


def drop(path: Path) -> None:
    """Have no page of the file in memory."""
    with path.open("rb") as file:
        os.fsync(file.fileno())  # a page that is not written yet stays
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if (page_cache_share([path]) or 0) > STILL_CACHED_SHARE:
        raise SystemExit(f"{path}: this system keeps in memory what it is told to drop")


def timed_direct_read(path: Path) -> float:
    """Seconds to read the file past the page cache, with four requests in flight."""
    drop(path)
    turns = itertools.count()
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    buffers = [mmap.mmap(-1, REQUEST_BYTES) for _ in range(REQUESTS)]
    for buffer in buffers:
        buffer.write(bytes(REQUEST_BYTES))

    def read(buffer: mmap.mmap) -> None:
        while os.preadv(descriptor, [buffer], next(turns) * REQUEST_BYTES):
            pass

    threads = [threading.Thread(target=read, args=(buffer,)) for buffer in buffers]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    os.close(descriptor)
    return seconds


def timed_cold(name: str, path: Path, dtype: torch.dtype) -> float:
    drop(path)
    return timed(LOADS[name], path.parent, dtype)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often each load is measured (default: 5)")
    parser.add_argument("--json", type=Path, default=Path("load_cold.json"), help="where the figures go")
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    quiet_transformers()
    path = checkpoint_directory() / "model.safetensors"
    for name, dtype in CASES:
        timed(LOADS[name], path.parent, DTYPES[dtype])  # imports
    reads: list[float] = []
    times: dict[Case, list[float]] = {case: [] for case in CASES}
    end = time.monotonic() + LIMIT_SECONDS
    while len(reads) < arguments.rounds and time.monotonic() < end:
        reads.append(timed_direct_read(path))
        for name, dtype in CASES:
            times[name, dtype].append(timed_cold(name, path, DTYPES[dtype]))
    read, spreads = Spread.of(reads), {case: Spread.of(values) for case, values in times.items()}
    say(f"medians (min-max) of {len(reads)} rounds; reading the file past the page cache: {read.text(1000)} ms")
    rows = [(*case, spread.text(1000), spread.over(read).text(digits=2)) for case, spread in spreads.items()]
    say_table(("load", "dtype", "ms", "/ reading"), rows)
    loads = [{"load": name, "dtype": dtype, "seconds": values} for (name, dtype), values in times.items()]
    write_json(arguments.json, {"read_seconds": reads, "loads": loads})


if __name__ == "__main__":
    main()

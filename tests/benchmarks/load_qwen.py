"""Time and peak memory of a load by vramscope, from_pretrained and load_file: `python tests/benchmarks/load_qwen.py`.

All load the same checkpoint of Qwen2.5-0.5B's size from the page cache, in turn, in one process; every page is touched
before the clock stops, because the others map what they do not convert. load_file is safetensors' own and makes no
model, nor does runai_model_streamer, which is measured where it is installed. vramscope makes float16 of bfloat16 by
compiled code; "vramscope, torch only" is the same without that, as where no compiler was at hand. Before each load as
much memory is filled and freed: on a virtual machine the host takes freed memory back, and to touch it again costs more
than the load. Peaks are those of fresh processes, above what they held when everything was imported. Quote the ratios.
"""

import argparse
import gc
import importlib.util
import json
import mmap
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
import transformers
from figures import Spread, checkpoint_directory, say, say_table, write_json
from safetensors.torch import load_file

from vramscope.anatomy.source import resolve
from vramscope.loading import halves, loader
from vramscope.loading.assemble import quiet_transformers
from vramscope.memory.resident import read_resident

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
PAGE_BYTES = 4096
CONDITIONED_BYTES = 2 << 30  # what from_pretrained takes at its highest
# No new round begins after this, so that a slow machine ends, too.
LIMIT_SECONDS = 60.0
Load = Callable[[Path, torch.dtype], list[torch.Tensor]]
Case = tuple[str, str]  # who loads, and in which dtype


class Phase:
    """A phase that nobody looks at."""

    nbytes: int | None = None


class Silence:
    """A monitor that hears nothing and never asks to stop."""

    def phase(self, name: str) -> AbstractContextManager[Phase]:  # noqa: ARG002
        return nullcontext(Phase())

    def enter_phase(self, name: str) -> None:
        pass

    def record_phase(self, name: str, seconds: float, nbytes: int | None) -> None:
        pass

    def progress(self, bytes_done: int, bytes_total: int) -> None:
        pass

    def check_cancelled(self) -> None:
        pass


def by_vramscope(directory: Path, dtype: torch.dtype) -> list[torch.Tensor]:
    """From the directory's name to the model, as a `load` step does it."""
    return list(loader.load(resolve(str(directory), directory), dtype, Silence()).module.parameters())


def by_torch_only(directory: Path, dtype: torch.dtype) -> list[torch.Tensor]:
    native, halves.native = halves.native, None
    try:
        return by_vramscope(directory, dtype)
    finally:
        halves.native = native


def by_transformers(directory: Path, dtype: torch.dtype) -> list[torch.Tensor]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, local_files_only=True)
    return list(model.parameters())


def by_load_file(directory: Path, dtype: torch.dtype) -> list[torch.Tensor]:
    return [tensor.to(dtype) for tensor in load_file(directory / "model.safetensors").values()]


def by_runai(directory: Path, dtype: torch.dtype) -> list[torch.Tensor]:
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_file(str(directory / "model.safetensors"))
        return [tensor.to(dtype) for _, tensor in streamer.get_tensors()]


TORCH_ONLY = "vramscope, torch only"
LOADS: dict[str, Load] = {
    "vramscope": by_vramscope,
    TORCH_ONLY: by_torch_only,
    "from_pretrained": by_transformers,
    "load_file": by_load_file,
}
if halves.native is None:
    del LOADS[TORCH_ONLY]
RUNAI = "runai_model_streamer"
if importlib.util.find_spec(RUNAI):
    LOADS[RUNAI] = by_runai
# The checkpoint is in bfloat16: to load it so, nothing is converted either way.
CASES: tuple[Case, ...] = tuple(
    (name, dtype) for dtype in DTYPES for name in LOADS if (name, dtype) != (TORCH_ONLY, "bfloat16")
)


def touch(tensors: list[torch.Tensor]) -> None:
    """Have every page of them in memory."""
    storages = (tensor.untyped_storage() for tensor in tensors)
    for storage in {storage.data_ptr(): storage for storage in storages}.values():
        torch.empty(0, dtype=torch.uint8).set_(storage)[::PAGE_BYTES].sum()


def condition(nbytes: int) -> None:
    """Fill and free as much memory as a load takes."""
    memory = mmap.mmap(-1, nbytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE)  # from huge pages both kinds of page can be had again
    page = b"\1" * (1 << 20)
    for _ in range(nbytes // len(page)):
        memory.write(page)
    memory.close()


def timed_read(directory: Path, buffer: bytearray) -> float:
    """Seconds to read the file into memory that is there, with one thread: what no load from this file can beat."""
    began = time.perf_counter()
    with (directory / "model.safetensors").open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - began


def timed(load: Load, directory: Path, dtype: torch.dtype) -> float:
    gc.collect()
    condition(CONDITIONED_BYTES)
    began = time.perf_counter()
    tensors = load(directory, dtype)
    touch(tensors)
    seconds = time.perf_counter() - began
    del tensors
    gc.collect()
    return seconds


def measure_times(directory: Path, rounds: int) -> tuple[Spread, dict[Case, Spread]]:
    """Seconds of reading alone, and of each load; one of each in turn, after one that does not count."""
    for load in LOADS.values():
        timed(load, directory, torch.float16)
    gc.freeze()
    buffer = bytearray(1 << 20)
    reads: list[float] = []
    times: dict[Case, list[float]] = {case: [] for case in CASES}
    end = time.monotonic() + LIMIT_SECONDS
    while len(reads) < rounds and time.monotonic() < end:
        reads.append(timed_read(directory, buffer))
        for name, dtype in CASES:
            times[name, dtype].append(timed(LOADS[name], directory, DTYPES[dtype]))
    return Spread.of(reads), {case: Spread.of(values) for case, values in times.items()}


def print_peak(name: str, dtype: str) -> None:
    """In a process of its own: load once, and print by how many bytes the resident memory rose at its highest."""
    tiny = checkpoint_directory("tiny")
    for load in LOADS.values():
        touch(load(tiny, torch.float16))  # imports, and what first calls allocate
    directory = checkpoint_directory()
    gc.collect()
    # Resets the high-water mark to what is held now: proc_pid_clear_refs(5).
    Path("/proc/self/clear_refs").write_text("5")
    before = read_resident()
    touch(LOADS[name](directory, DTYPES[dtype]))
    after = read_resident()
    if before is None or after is None:
        raise SystemExit("this system does not tell what a process holds in memory")
    say(json.dumps(after.peak_bytes - before.total_bytes))


def measure_peak(case: Case) -> int:
    command = [sys.executable, __file__, "--peak-of", *case]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def report(reads: Spread, times: dict[Case, Spread], peaks: dict[Case, int]) -> list[dict[str, Any]]:
    """Print the table; return its rows as values. Ratios are taken within a round."""
    rows: list[tuple[str, ...]] = []
    figures: list[dict[str, Any]] = []
    for name, dtype in CASES:
        seconds = times[name, dtype]
        to_read, to_other = seconds.over(reads), seconds.over(times["from_pretrained", dtype])
        peak = f"{peaks[name, dtype] / 1e6:,.0f}"
        rows.append((name, dtype, seconds.text(1000), to_read.text(digits=2), to_other.text(digits=2), peak))
        figures.append(
            {
                "load": name,
                "dtype": dtype,
                "seconds": seconds.values,
                "to_reading": to_read.median,
                "to_from_pretrained": to_other.median,
                "peak_bytes": peaks[name, dtype],
            }
        )
    say(f"medians (min-max) of {len(reads.values)} rounds; reading the file alone: {reads.text(1000)} ms")
    say_table(("load", "dtype", "ms", "/ reading", "/ from_pretrained", "peak MB"), rows)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7, help="how often each load is measured (default: 7)")
    parser.add_argument("--json", type=Path, default=Path("load_qwen.json"), help="where the figures go")
    parser.add_argument("--peak-of", nargs=2, metavar=("LOAD", "DTYPE"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    quiet_transformers()
    if arguments.peak_of:
        print_peak(*arguments.peak_of)
        return
    if RUNAI not in LOADS:
        say(f"without {RUNAI}, which is not installed")
    if TORCH_ONLY not in LOADS:
        say("vramscope through torch: its compiled code was not built, or this processor cannot run it")
    directory = checkpoint_directory()
    reads, times = measure_times(directory, arguments.rounds)
    loads = report(reads, times, {case: measure_peak(case) for case in CASES})
    write_json(arguments.json, {"read_seconds": reads.values, "loads": loads})


if __name__ == "__main__":
    main()

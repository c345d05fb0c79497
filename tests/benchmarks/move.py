"""Moves and loads to a device against torch's own: `python tests/benchmarks/move.py`; says on which device.

There and back by vramscope beside Module.to(), and a load straight to the device beside a load to RAM and a move; in
turn, in one process, on a checkpoint of Qwen2.5-0.5B's size that is in the page cache. Without a GPU run it in the
environment of `make test-cuda-stub`, with VRAMSCOPE_CUDA_STUB=1: the stub driver's copies are those of the processor
and end when they begin, so that nothing overlaps, and each byte is copied once more than on a GPU. Quote the ratios.
"""

import argparse
import gc
import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from figures import Spread, checkpoint_directory, say, say_table, write_json
from load_qwen import CONDITIONED_BYTES, Silence, condition

from vramscope.anatomy.source import resolve
from vramscope.devices.cuda import CudaDevice
from vramscope.loading import loader
from vramscope.loading.assemble import quiet_transformers
from vramscope.loading.resident import ModelIdentity, ResidentModel

STUB = Path(__file__).parents[2] / ".venv-cuda-stub/bin/python"
ASKED = "VRAMSCOPE_CUDA_STUB"
LIMIT_SECONDS = 60.0
DTYPE = torch.float16
# Each is followed by what it is compared with.
PAIRS = (
    ("move to the device", "Module.to(device)"),
    ("move to the host", "Module.to(cpu)"),
    ("load to the device", "load, then move"),
)
Times = dict[str, list[float]]


def identity(directory: Path) -> ModelIdentity:
    return ModelIdentity(
        model=directory.name,
        architecture="",
        dtype="float16",
        quantization="",
        revision="",
        file_bytes=0,
        file_elements=0,
        context_window_tokens=None,
    )


def bring(directory: Path, device: CudaDevice | None) -> ResidentModel:
    """A load as a step does it."""
    loaded = loader.load(resolve(str(directory), directory), DTYPE, Silence(), device)
    return ResidentModel(identity(directory), loaded.module, device if loaded.held else None, loaded.held)


def timed(device: CudaDevice, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    device.synchronize()
    return time.perf_counter() - began


def fresh(device: CudaDevice) -> None:
    """Have nothing on the device and in its cache, and memory of the host that was used before."""
    gc.collect()
    device.empty_cache()
    condition(CONDITIONED_BYTES)


def measure(directory: Path, device: CudaDevice) -> tuple[dict[str, float], str, int]:
    """Seconds of each way, how the moves were staged, and the model's bytes."""
    seconds: dict[str, float] = {}
    fresh(device)
    model = bring(directory, None)
    began = model.move(device, Silence())
    seconds["move to the device"] = began.seconds
    seconds["move to the host"] = model.move(None, Silence()).seconds
    model.unload()
    fresh(device)
    module = loader.load(resolve(str(directory), directory), DTYPE, Silence()).module
    seconds["Module.to(device)"] = timed(device, partial(module.to, "cuda:0"))
    seconds["Module.to(cpu)"] = timed(device, partial(module.to, "cpu"))
    del module
    fresh(device)
    seconds["load to the device"] = timed(device, lambda: bring(directory, device))
    fresh(device)
    seconds["load, then move"] = timed(device, lambda: bring(directory, None).move(device, Silence()))
    return seconds, began.staging, began.nbytes


def measure_all(directory: Path, device: CudaDevice, rounds: int) -> tuple[Times, str, int]:
    """Every way in turn, after a round that does not count."""
    measure(directory, device)
    gc.freeze()
    times: Times = {name: [] for pair in PAIRS for name in pair}
    end = time.monotonic() + LIMIT_SECONDS
    staging, nbytes = "", 0
    for number in range(rounds):
        if number and time.monotonic() > end:
            break
        seconds, staging, nbytes = measure(directory, device)
        for name, value in seconds.items():
            times[name].append(value)
    return times, staging, nbytes


def rows(times: Times, nbytes: int) -> Iterable[dict[str, Any]]:
    """What was measured, with the ratio to its other within a round."""
    for ours, other in PAIRS:
        for name in (ours, other):
            spread = Spread.of(times[name])
            ratio = spread.over(Spread.of(times[other]))
            yield {
                "way": name,
                "seconds": spread.values,
                "bytes_per_second": nbytes / spread.median,
                "to": other,
                "ratio": ratio.median,
                "text": (spread.text(1000), f"{nbytes / spread.median / 1e9:.2f}", ratio.text(digits=2)),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often each way is measured (default: 5)")
    parser.add_argument("--model", default="qwen2.5-0.5b", help="a synthetic checkpoint (default: qwen2.5-0.5b)")
    parser.add_argument("--json", type=Path, default=Path("move.json"), help="where the figures go")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        if STUB.exists() and ASKED not in os.environ:
            os.execve(STUB, [str(STUB), *sys.argv], {**os.environ, ASKED: "1"})  # noqa: S606 - it takes our place
        say("skipped: torch sees no CUDA device here; the stub driver's environment is made by `make test-cuda-stub`")
        return
    quiet_transformers()
    device = CudaDevice(0)
    device.open()
    times, staging, nbytes = measure_all(checkpoint_directory(arguments.model), device, arguments.rounds)
    found = list(rows(times, nbytes))
    name = device.facts().name
    say(f"{nbytes:,} bytes, {name}, staging {staging}; medians (min-max) of {len(times['load, then move'])} rounds")
    say_table(("way", "ms", "GB/s", "/ its other"), ((row["way"], *row.pop("text")) for row in found))
    write_json(arguments.json, {"device": name, "staging": staging, "nbytes": nbytes, "ways": found})


if __name__ == "__main__":
    main()

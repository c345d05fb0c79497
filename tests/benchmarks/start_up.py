"""From the start of a process to a model on the host, by worker and by script: `python tests/benchmarks/start_up.py`.

The script does what a load without vramscope takes: it imports torch and transformers and calls from_pretrained. Both
load the same checkpoint of Qwen2.5-0.5B's size in float16, in turn, once with its file in the page cache and once
without. Quote the ratios.
"""

import argparse
import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

from figures import Spread, checkpoint_directory, say, say_table, write_json

from vramscope.events import Outcome
from vramscope.plan.schema import ModelSpec
from vramscope.settings import Deadlines, DeviceMode, WorkerSettings
from vramscope.worker.client import WorkerClient
from vramscope.worker.protocol import Configure, RunStep

DTYPE = "float16"
SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float16, local_files_only=True)
for parameter in model.parameters():
    parameter.view(-1)[::2048].sum()
"""


async def by_worker(directory: Path) -> float:
    """Seconds until a new worker has loaded the model."""
    settings = WorkerSettings(
        device_mode=DeviceMode.SIMULATED, cache=directory, hub_cache=directory, first_source=str(directory)
    )
    began = time.perf_counter()
    client = await WorkerClient.spawn(settings, Deadlines(), lambda _event: None)
    try:
        await client.wait_ready()
        model = ModelSpec(name="m", source=str(directory), dtype=DTYPE)
        await client.send(Configure(models={"m": model}, device="cuda:0"))
        step = RunStep(run=1, step="load", kind="load", model="m", fields={"model": "m"})
        answer = await client.request(1, step)
        seconds = time.perf_counter() - began
    finally:
        await client.stop()
    if answer.outcome is not Outcome.SUCCEEDED:
        raise SystemExit(f"the load failed: {answer.error}")
    return seconds


def by_script(directory: Path) -> float:
    """Seconds until a new interpreter has done it; it is not waited for to end in order."""
    began = time.perf_counter()
    code = SCRIPT + "\nimport os\nos._exit(0)"
    subprocess.run([sys.executable, "-P", "-c", code, str(directory)], check=True, capture_output=True)
    return time.perf_counter() - began


def prepare(path: Path, *, cached: bool) -> None:
    """Have the file in the page cache, or not."""
    if cached:
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 20):
                pass
        return
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def measure(directory: Path, rounds: int, *, cached: bool) -> tuple[Spread, Spread]:
    """Seconds of the worker and of the script, one of each in turn, after one of each that does not count."""
    ours, theirs = [], []
    for count in range(rounds + 1):
        prepare(directory / "model.safetensors", cached=cached)
        own = asyncio.run(by_worker(directory))
        prepare(directory / "model.safetensors", cached=cached)
        other = by_script(directory)
        if count:
            ours.append(own)
            theirs.append(other)
    return Spread.of(ours), Spread.of(theirs)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured (default: 5)")
    parser.add_argument("--json", type=Path, default=Path("start_up.json"), help="where the figures go")
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    directory = checkpoint_directory()
    rows, figures = [], {}
    for name, cached in (("cached", True), ("cold", False)):
        ours, theirs = measure(directory, arguments.rounds, cached=cached)
        ratio = ours.over(theirs)
        rows.append((name, ours.text(1000), theirs.text(1000), ratio.text(digits=2)))
        figures[name] = {"worker_seconds": ours.values, "script_seconds": theirs.values, "ratio": ratio.median}
    say(f"from the start of a process to a model on the host, medians (min-max) of {arguments.rounds} rounds")
    say_table(("file", "worker ms", "script ms", "ratio"), rows)
    write_json(arguments.json, figures)


if __name__ == "__main__":
    main()

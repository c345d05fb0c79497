"""How long `vramscope inspect` takes for a 7B model in shards, and how much memory, beside two usual ways to find out.

    python tests/benchmarks/inspect_shards.py --rounds 5 --json inspect.json

The shards are sparse files: full-size headers, no data. Each way runs as a process of its own, the three in turn:
    inspect       `vramscope inspect DIR --format json`, from the start of Python to the printed counts
    safe_open     safetensors' own reader opens all shards and multiplies out every shape; no torch is imported
    transformers  builds the architecture on meta from config.json and adds up its parameters
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from figures import Spread, say, say_table, write_json

from vramscope.anatomy.decoder import ELEMENT_BYTES, TensorPlan, decoder_tensors

# https://huggingface.co/Qwen/Qwen2.5-7B/blob/main/config.json
CONFIG = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_act": "silu",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "max_position_embeddings": 131072,
    "num_attention_heads": 28,
    "num_hidden_layers": 28,
    "num_key_value_heads": 4,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vocab_size": 152064,
}
PARAMETERS = 7_615_616_512
SHARD_BYTES = 4_000_000_000
INSPECT, SAFE_OPEN, TRANSFORMERS = "inspect", "safe_open", "transformers on meta"
MIB = 1 << 20

_SAFE_OPEN = """
import math, pathlib, sys
from safetensors import safe_open
count = 0
for path in sorted(pathlib.Path(sys.argv[1]).glob("*.safetensors")):
    with safe_open(path, "np") as file:
        count += sum(math.prod(file.get_slice(name).get_shape()) for name in file.keys())
print(count)
"""
_TRANSFORMERS = """
import sys, torch
from transformers import AutoConfig, AutoModelForCausalLM
with torch.device("meta"):
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(sys.argv[1]))
print(sum(parameter.numel() for parameter in model.parameters()))
"""


@dataclass(frozen=True)
class Measured:
    """One process: wall seconds, those of the processor, peak resident bytes, and what it printed."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    output: str


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        directory = write_shards(Path(made))
        ways = commands(directory)
        for command in ways.values():  # fill the page cache
            measure(command)
        rounds = [{name: measure(command) for name, command in ways.items()} for _ in range(arguments.rounds)]
    check(rounds[0])
    report(rounds, arguments.json)


def write_shards(directory: Path) -> Path:
    """Write the config, the index, and sparse shards of the 7B model."""
    shards: list[list[TensorPlan]] = [[]]
    for tensor in decoder_tensors(CONFIG):
        if sum(other.nbytes for other in shards[-1]) + tensor.nbytes > SHARD_BYTES:
            shards.append([])
        shards[-1].append(tensor)
    home = {}
    for number, shard in enumerate(shards, start=1):
        name = f"model-{number:05}-of-{len(shards):05}.safetensors"
        write_sparse(directory / name, shard)
        home |= dict.fromkeys((tensor.name for tensor in shard), name)
    (directory / "config.json").write_text(json.dumps(CONFIG))
    index = {"metadata": {"total_size": PARAMETERS * ELEMENT_BYTES}, "weight_map": home}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


def write_sparse(path: Path, tensors: Sequence[TensorPlan]) -> None:
    header, end = {}, 0
    for tensor in tensors:
        start, end = end, end + tensor.nbytes
        header[tensor.name] = {"dtype": "BF16", "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + end)


def commands(directory: Path) -> dict[str, list[str]]:
    return {
        INSPECT: [sys.executable, "-m", "vramscope", "inspect", str(directory), "--format", "json"],
        SAFE_OPEN: [sys.executable, "-c", _SAFE_OPEN, str(directory)],
        TRANSFORMERS: [sys.executable, "-c", _TRANSFORMERS, str(directory)],
    }


def measure(command: Sequence[str]) -> Measured:
    """Run one process; its peak is what the kernel counted for it alone."""
    began = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        output = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - began
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    cpu_seconds = usage.ru_utime + usage.ru_stime  # what a busy machine does not lengthen
    return Measured(seconds=seconds, cpu_seconds=cpu_seconds, peak_bytes=usage.ru_maxrss * 1024, output=output)


def check(measured: dict[str, Measured]) -> None:
    """Every way must find the same number of parameters."""
    counts = {name: way.output for name, way in measured.items()}
    counts[INSPECT] = str(json.loads(counts[INSPECT])["parameters"])
    if any(int(count) != PARAMETERS for count in counts.values()):
        raise SystemExit(f"expected {PARAMETERS} parameters, got {counts}")


def report(rounds: Sequence[dict[str, Measured]], path: Path | None) -> None:
    times = {name: Spread.of(round_[name].seconds for round_ in rounds) for name in rounds[0]}
    cpu = {name: Spread.of(round_[name].cpu_seconds for round_ in rounds) for name in rounds[0]}
    peaks = {name: statistics.median(round_[name].peak_bytes for round_ in rounds) for name in rounds[0]}
    say(f"{PARAMETERS:,} parameters in shards, {len(rounds)} rounds; median (range)")
    head = ["way", "seconds", "CPU seconds", "peak RAM MiB", "times as long as inspect"]
    rows = [
        [
            name,
            spread.text(digits=2),
            cpu[name].text(digits=2),
            f"{peaks[name] / MIB:.0f}",
            spread.over(times[INSPECT]).text(digits=2),
        ]
        for name, spread in times.items()
    ]
    say_table(head, rows)
    if path:
        figures = {
            name: {"seconds": spread.values, "cpu_seconds": cpu[name].values, "peak_bytes": peaks[name]}
            for name, spread in times.items()
        }
        write_json(path, figures)


if __name__ == "__main__":
    main()

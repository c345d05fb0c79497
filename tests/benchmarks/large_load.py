"""A load of a sharded checkpoint of a 7B model's size, and its cancellation: `python tests/benchmarks/large_load.py`.

The checkpoint has the shape of Qwen2.5-7B, with random weights or, with --holes, with none: files that take no room on
the disk. It must load without swapping, tell its progress at least twice a second, and end within a second when it is
cancelled. Needs as much disk (without --holes) and RAM as the model has bytes; the files are deleted at the end.
"""

import argparse
import json
import math
import os
import tempfile
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import transformers
from figures import say, write_json

from vramscope.anatomy.source import Checkpoint, resolve
from vramscope.errors import StepCancelledError
from vramscope.loading import loader
from vramscope.loading.assemble import find_architecture, quiet_transformers
from vramscope.loading.skeleton import Skeleton
from vramscope.memory.resident import read_resident

SHARDS = 4
SHAPE = {
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
    "architectures": ["Qwen2ForCausalLM"],
}
PROGRESS_GAP_SECONDS = 0.5
CANCEL_SECONDS = 1.0
CANCELLED_AT = 1 / 3


@dataclass
class Watch:
    """A monitor that notes when it is told of progress, and cancels at a share of the bytes."""

    cancel_at: float = 2.0
    told: list[float] = field(default_factory=list)
    cancelled_at: float = math.inf

    def phase(self, name: str) -> AbstractContextManager[Any]:  # noqa: ARG002
        return nullcontext(self)

    def enter_phase(self, name: str) -> None:
        pass

    def record_phase(self, name: str, seconds: float, nbytes: int | None) -> None:
        say(f"  {name}: {seconds:.2f} s" + (f", {nbytes / 1e9 / seconds:.2f} GB/s" if nbytes and seconds else ""))

    def progress(self, bytes_done: int, bytes_total: int) -> None:
        self.told.append(time.monotonic())
        if bytes_done >= self.cancel_at * bytes_total:
            self.cancelled_at = min(self.cancelled_at, time.monotonic())

    def check_cancelled(self) -> None:
        if self.cancelled_at < math.inf:
            raise StepCancelledError("far enough")

    @property
    def longest_gap(self) -> float:
        return max(after - before for before, after in pairwise(self.told))


def make(directory: Path, layers: int, *, holes: bool) -> Checkpoint:
    """Write the shards, each with every fourth tensor or so, in bfloat16."""
    config = transformers.Qwen2Config(num_hidden_layers=layers, dtype="bfloat16", **SHAPE)
    config.save_pretrained(directory)
    skeleton = Skeleton(find_architecture(directory, config.to_dict()), torch.bfloat16)
    shapes = [(slot.name, list(slot.tensor.shape)) for slot in skeleton.slots if not slot.is_buffer]
    share = -(-len(shapes) // SHARDS)
    names: dict[str, str] = {}
    for number in range(SHARDS):
        part = shapes[number * share : (number + 1) * share]
        name = f"model-{number + 1:05}-of-{SHARDS:05}.safetensors"
        names |= dict.fromkeys((tensor for tensor, _ in part), name)
        write_shard(directory / name, part, holes=holes)
    (directory / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return resolve(str(directory), directory)


def write_shard(path: Path, shapes: list[tuple[str, list[int]]], *, holes: bool) -> None:
    header, end = {}, 0
    for name, shape in shapes:
        start, end = end, end + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        block = (torch.randn(32 << 20) / 8).bfloat16().view(torch.uint8).numpy().data
        for start in range(0, 0 if holes else end, len(block)):
            file.write(block[: end - start])
        file.truncate(8 + len(text) + end)


def swapped() -> int:
    """Pages that this machine has written to swap since it was started (proc_vmstat(5))."""
    lines = Path("/proc/vmstat").read_text().splitlines()
    return next((int(line.split()[1]) for line in lines if line.startswith("pswpout ")), 0)


def cancelled(checkpoint: Checkpoint, dtype: torch.dtype) -> float:
    """Seconds from the wish to stop to the end of the load."""
    watch = Watch(cancel_at=CANCELLED_AT)
    try:
        loader.load(checkpoint, dtype, watch)
    except StepCancelledError:
        return time.monotonic() - watch.cancelled_at
    raise SystemExit("the load was not cancelled")


def measure(checkpoint: Checkpoint, dtype: torch.dtype) -> dict[str, Any]:
    stop_seconds = cancelled(checkpoint, dtype)
    watch, before, pages = Watch(), read_resident(), swapped()
    began = time.monotonic()
    loaded = loader.load(checkpoint, dtype, watch)
    seconds, after = time.monotonic() - began, read_resident()
    return {
        "bytes": sum(parameter.nbytes for parameter in loaded.module.parameters()),
        "seconds": seconds,
        "longest_gap_seconds": watch.longest_gap,
        "cancel_seconds": stop_seconds,
        "swapped_pages": swapped() - pages,
        "peak_bytes": after.peak_bytes - before.total_bytes if before and after else None,
        **loaded.facts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--layers", type=int, default=28, help="fewer make a smaller model (default: 28, 15.2 GB)")
    parser.add_argument("--dtype", default="float16", choices=("float16", "bfloat16"))
    parser.add_argument("--holes", action="store_true", help="files without data")
    parser.add_argument("--directory", type=Path, help="where the files are made (default: the temporary directory)")
    parser.add_argument("--json", type=Path, default=Path("large_load.json"), help="where the figures go")
    arguments = parser.parse_args()
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    quiet_transformers()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as home:
        checkpoint = make(Path(home), arguments.layers, holes=arguments.holes)
        say(f"{checkpoint.file_bytes / 1e9:.1f} GB in {len(checkpoint.files)} files")
        figures = measure(checkpoint, getattr(torch, arguments.dtype))
    for name, value in figures.items():
        say(f"{name}: {value}")
    write_json(arguments.json, figures)
    if figures["swapped_pages"] or figures["longest_gap_seconds"] > PROGRESS_GAP_SECONDS:
        raise SystemExit("it swapped, or was silent for too long")
    if figures["cancel_seconds"] > CANCEL_SECONDS:
        raise SystemExit("it did not stop in time")


if __name__ == "__main__":
    main()

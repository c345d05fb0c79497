"""Moves every model shape to the stub GPU and back, and prints what the caching allocator said, as one JSON object.

Each model's `order` is [name, shape, dtype, bytes] of its tensors as Module.to() moves them, and its `phases` are rows
of [what was done, *COUNTERS]: the format of tests/memory/golden/models.json.
"""

import gc
import itertools
import json
import sys
from typing import Any

import model_shapes
import torch

COUNTERS = (
    "allocated_bytes.all.current",
    "reserved_bytes.all.current",
    "active_bytes.all.current",
    "inactive_split_bytes.all.current",
    "requested_bytes.all.current",
    "segment.all.current",
    "num_ooms",
    "num_alloc_retries",
)


def measure(model: torch.nn.Module) -> dict[str, Any]:
    """Move the model to the GPU and back twice, then empty the cache."""
    gc.collect()
    torch.cuda.empty_cache()
    order = described_order(model)
    phases = []
    for phase in ("cuda", "cpu", "cuda", "cpu", "empty_cache"):
        if phase == "empty_cache":
            torch.cuda.empty_cache()
        else:
            model.to(phase)
        counters = torch.cuda.memory_stats()
        phases.append([phase, *(counters[key] for key in COUNTERS)])
    return {"parameters": sum(p.numel() for p in model.parameters()), "order": order, "phases": phases}


def described_order(model: torch.nn.Module) -> list[list[Any]]:
    """Name every tensor by the first of its names."""
    names: dict[int, str] = {}
    parameters = model.named_parameters(remove_duplicate=False)
    for name, tensor in itertools.chain(parameters, model.named_buffers(remove_duplicate=False)):
        names.setdefault(id(tensor), name)
    return [
        [names[id(tensor)], list(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor.nbytes]
        for tensor in model_shapes.move_order(model)
    ]


if __name__ == "__main__":
    torch.empty(1, device="cuda")
    json.dump({name: measure(model_shapes.build(name)) for name in model_shapes.SHAPES}, sys.stdout)

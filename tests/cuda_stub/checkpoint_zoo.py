"""Checkpoints of several architectures and sizes, as transformers saves them, known to a device and its forecast.

Runs in a process on the stub driver.
"""

import gc
from pathlib import Path

import torch
from side_by_side import SideBySide, loader_of, order_of
from tests.loading.checkpoints import resolve_directory, save_checkpoint

_DECODER = {"num_hidden_layers": 3, "num_attention_heads": 8, "num_key_value_heads": 2}

# In which dtypes each is loaded, and changes to the tiny configs of tests/loading/checkpoints.py: tensors of every
# class of the allocator, below 1 MiB, below 10 MiB and above. mixtral's experts are fused while loading, and bert has a
# bias beside a tied weight, so that neither streams to a device; t5 keeps some weights in float32.
MODELS: dict[str, tuple[tuple[str, ...], dict[str, int]]] = {
    "qwen2": (("float16", "float32"), {**_DECODER, "vocab_size": 9000, "hidden_size": 512, "intermediate_size": 1408}),
    "llama": (("bfloat16",), {**_DECODER, "vocab_size": 14000, "hidden_size": 512, "intermediate_size": 2048}),
    "gpt2": (("float32",), {"vocab_size": 6000, "n_embd": 512, "n_layer": 2, "n_head": 8}),
    "mixtral": (("bfloat16",), {**_DECODER, "vocab_size": 2000, "hidden_size": 256, "intermediate_size": 900}),
    "bert": (("float32",), {"vocab_size": 7000, "hidden_size": 256, "intermediate_size": 1024}),
    "t5": (("float16",), {"vocab_size": 6000, "d_model": 256, "d_kv": 64, "d_ff": 1024, "num_heads": 8}),
    "phi": (("float16",), {}),
}


def stock(side: SideBySide, folder: Path) -> list[str]:
    """Make every checkpoint, and let both sides know it in its dtypes; returns the models' names."""
    names = []
    for name, (dtypes, sizes) in MODELS.items():
        checkpoint = resolve_directory(save_checkpoint(name, folder / name, **sizes))
        for dtype in dtypes:
            names.append(model := f"{name} {dtype}")
            side.know(model, order_of(checkpoint, getattr(torch, dtype)), loader_of(model, checkpoint, dtype))
    gc.freeze()  # as side_by_side does: the models' classes are imported now, too
    return names

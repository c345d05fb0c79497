"""Checkpoints that tests write by hand, byte for byte."""

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

WIDTH = {"F32": 4, "F16": 2, "BF16": 2, "I32": 4, "U8": 1}

Weights = Callable[..., Path]


@pytest.fixture
def raw_file() -> Callable[..., Path]:
    """Write a length, a header (bytes, or a value for JSON) and data, whether they fit together or not."""

    def write(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
        text = header if isinstance(header, bytes) else json.dumps(header).encode()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
        return path

    return write


@pytest.fixture
def weights(raw_file: Callable[..., Path]) -> Weights:
    """Write a good safetensors file with tensors of zeros, given as name to (dtype, shape)."""

    def write(path: Path, tensors: Mapping[str, tuple[str, list[int]]]) -> Path:
        header, end = {}, 0
        for name, (dtype, shape) in tensors.items():
            start, end = end, end + WIDTH[dtype] * math.prod(shape)
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [start, end]}
        return raw_file(path, header, bytes(end))

    return write


@pytest.fixture
def model(tmp_path: Path, weights: Weights) -> Path:
    """Make a directory with a config and a single weight file of 8 bf16 elements."""
    directory = tmp_path / "model"
    weights(directory / "model.safetensors", {"embed.weight": ("BF16", [4, 2])})
    (directory / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    return directory


@pytest.fixture
def sharded(tmp_path: Path, weights: Weights) -> Path:
    """Make a directory with a config, an index and two shards: a and b in the first, c in the second."""
    directory = tmp_path / "sharded"
    weights(directory / "model-00001-of-00002.safetensors", {"a": ("F32", [2]), "b": ("F32", [3])})
    weights(directory / "model-00002-of-00002.safetensors", {"c": ("BF16", [4])})
    home = {"a": 1, "b": 1, "c": 2}
    index = {"weight_map": {name: f"model-0000{shard}-of-00002.safetensors" for name, shard in home.items()}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    (directory / "config.json").write_text('{"model_type": "llama"}')
    return directory

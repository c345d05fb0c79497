"""Checkpoints as people really have them, made by hand and tiny: how they are written, and what is right about each.

The cases themselves stand by kind in cases_plain, cases_quantized and cases_damaged; each is a function that writes its
files into an empty directory and says what inspecting and loading them must find.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vramscope.anatomy.header import DTYPE_BITS

ONE = {"BF16": b"\x80\x3f", "F16": b"\x00\x3c", "F32": b"\x00\x00\x80\x3f"}
TWO = {"BF16": b"\x00\x40", "F16": b"\x00\x40", "F32": b"\x00\x00\x00\x40"}
SIZES = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
}
# The Llama of these sizes: its parameters with tied embeddings, and those of the head that an untied one has besides.
TIED, HEAD = 6224, 1024
UNTIED = TIED + HEAD
SHARD = "model-{:05}-of-{:05}.safetensors"

Tensor = tuple[str, str, Sequence[int], bytes]


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What is right about one source below the directory of its case. Fields that are None are not looked at.

    `problem` is a pattern that must match what stands against loading: in the inspection, and in the error of the load
    where `load_error` does not say another. `loaded` are the parameters and bytes in memory. `is_unknown`: the count of
    parameters must be null. `never_made` are files that appear only where code of the checkpoint was run.
    """

    source: str = "m"
    parameters: int | None = None
    parameter_bytes: int | None = None
    stored_elements: int | None = None
    file_bytes: int | None = None
    tensors: int | None = None
    dtypes: Mapping[str, tuple[int, int]] | None = None
    quantization: str | None = None
    is_unknown: bool = False
    problem: str = ""
    note: str = ""
    loaded: tuple[int, int] | None = None
    buffer_bytes: int | None = None
    unexpected: tuple[str, ...] = ()
    load_error: str = ""
    never_made: tuple[str, ...] = ()
    hub_cache: str = ""
    revision: str = ""


def tensor(name: str, dtype: str, *shape: int, value: bytes = b"") -> Tensor:
    return name, dtype, shape, value or ONE.get(dtype, b"\0")


def write(path: Path, tensors: Iterable[Tensor], metadata: Mapping[str, str] | None = None) -> int:
    """Write a safetensors file whose tensors hold one value each; returns the bytes of its tensors."""
    header: dict[str, Any] = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, dtype, shape, value in tensors:
        nbytes = math.prod(shape) * DTYPE_BITS[dtype] // 8
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + nbytes]}
        data += (value * (nbytes // len(value) + 1))[:nbytes]
    write_raw(path, json.dumps(header).encode(), data)
    return len(data)


def write_raw(path: Path, header: bytes, data: bytes = b"", length: int | None = None) -> None:
    """Write a length, a header and data, whether they fit together or not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((len(header) if length is None else length).to_bytes(8, "little") + header + data)


def write_config(directory: Path, **fields: Any) -> None:
    """Write the Llama's config.json with changes; a field that is None is left out."""
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", **SIZES} | fields
    directory.mkdir(parents=True, exist_ok=True)
    stated = {key: value for key, value in config.items() if value is not None}
    (directory / "config.json").write_text(json.dumps(stated))


def llama(dtype: str = "BF16", *, tied: bool = True, norms: str = "", value: bytes = b"") -> list[Tensor]:
    """The tensors of the Llama in file order, the embedding first and, where it is not tied, the head last."""
    vocabulary, hidden, inner = SIZES["vocab_size"], SIZES["hidden_size"], SIZES["intermediate_size"]
    norms = norms or dtype
    tensors = [tensor("model.embed_tokens.weight", dtype, vocabulary, hidden, value=value)]
    for layer in range(SIZES["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        shapes = {f"self_attn.{name}_proj": (hidden, hidden) for name in "qkvo"}
        shapes |= {"mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}
        tensors += [tensor(f"{prefix}{name}.weight", dtype, *shape, value=value) for name, shape in shapes.items()]
        for name in ("input_layernorm", "post_attention_layernorm"):
            tensors.append(tensor(f"{prefix}{name}.weight", norms, hidden, value=value))
    tensors.append(tensor("model.norm.weight", norms, hidden, value=value))
    if not tied:
        tensors.append(tensor("lm_head.weight", dtype, vocabulary, hidden, value=value))
    return tensors


def write_llama(directory: Path, stored: str = "BF16", *, tied: bool = True, **fields: Any) -> int:
    """Write a whole Llama in one file, its config saying whether it is tied; returns the bytes of its tensors."""
    write_config(directory, **{"tie_word_embeddings": tied} | fields)
    return write(directory / "model.safetensors", llama(stored, tied=tied))


def write_shards(
    directory: Path, tensors: Sequence[Tensor], *, more: Mapping[str, str] | None = None, total: object = None
) -> list[str]:
    """Write shards of six tensors and their index, with `more` entries in it; returns the shards' names."""
    parts = [tensors[first : first + 6] for first in range(0, len(tensors), 6)]
    names = [SHARD.format(number, len(parts)) for number in range(1, len(parts) + 1)]
    written = sum(write(directory / name, part) for name, part in zip(names, parts, strict=True))
    home = {entry[0]: name for name, part in zip(names, parts, strict=True) for entry in part}
    index = {"metadata": {"total_size": written if total is None else total}, "weight_map": home | dict(more or {})}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return names

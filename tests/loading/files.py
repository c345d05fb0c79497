"""Safetensors files as tests need them, and how they are read."""

import json
import os
import threading
from collections.abc import Mapping
from pathlib import Path

import torch
from tests.loading.monitor import RecordingMonitor

from vramscope.anatomy.header import read_header
from vramscope.loading.dtypes import STORED_DTYPES, TORCH_DTYPES
from vramscope.loading.weights import StagedWeights


def write_in_order(path: Path, tensors: Mapping[str, torch.Tensor]) -> Path:
    """Write tensors one after the other as they come: the library sorts them, so that they are always aligned."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        end = len(data) + tensor.nbytes
        header[name] = {
            "dtype": STORED_DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), end],
        }
        data += tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b""
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def write_hole(path: Path, nbytes: int) -> Path:
    """Write a file with one tensor of zeros that takes no room on the disk."""
    text = json.dumps({"zeros": {"dtype": "U8", "shape": [nbytes], "data_offsets": [0, nbytes]}}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    os.truncate(path, 8 + len(text) + nbytes)
    return path


def tensors_of(*paths: Path) -> list:
    """What StagedWeights takes, for some files."""
    headers = [read_header(path) for path in paths]
    return [(header, entry) for header in headers for entry in header.tensors]


def stage(tensors, wanted) -> StagedWeights:
    """Tensors laid out, each in the torch dtype that `wanted` says."""
    return StagedWeights(tensors, lambda entry: STORED_DTYPES[wanted(entry)])


def read_weights(tensors, wanted, monitor, *, threads: int = 0) -> dict[str, torch.Tensor]:
    """Every tensor by name, read into one arena."""
    staged = stage(tensors, wanted)
    staged.fill(monitor, threads=threads)
    return staged.views()


def read(*paths: Path, dtype: torch.dtype | None = None, monitor: RecordingMonitor | None = None, threads: int = 0):
    """Read all tensors of some files, those that hold floats as `dtype` if one is given."""

    def wanted(entry):
        stored = TORCH_DTYPES[entry.dtype]
        return dtype if dtype and stored.is_floating_point else stored

    return read_weights(tensors_of(*paths), wanted, monitor or RecordingMonitor(), threads=threads)


def descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def reading_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("read-")]


def drop_from_cache(path):
    """Let no page of a file be in the page cache; what is not on the disk yet cannot go."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)

"""Whether the host has room for a load, told before anything is read.

Linux gives memory away before it has it: a load that does not fit does not fail, it gets the process killed.
"""

import torch

from vramscope.anatomy.header import TensorEntry
from vramscope.anatomy.source import Checkpoint
from vramscope.devices.protocol import Device
from vramscope.loading.assemble import find_architecture
from vramscope.loading.skeleton import Skeleton
from vramscope.loading.spans import TORCH_DTYPES
from vramscope.loading.weights import WINDOW_BYTES
from vramscope.memory.host import HostMemory
from vramscope.settings import MIB


def shortage(checkpoint: Checkpoint, dtype: torch.dtype, device: Device | None, host: HostMemory) -> str:
    """What a load to `device` (None: to RAM) needs and does not find; empty where it fits, and where nobody knows."""
    if host.available_bytes is None:
        return ""
    needed = _whole(checkpoint, dtype)
    if needed > host.available_bytes and device is not None and not device.shares_host_memory:
        needed = min(needed, _streamed(checkpoint, dtype) or needed)
    if needed <= host.available_bytes:
        return ""
    limit = "" if host.limit_bytes is None else f" of a limit of {_size(host.limit_bytes)}"
    return f"it needs {_size(needed)} of RAM, and {_size(host.available_bytes)}{limit} are available"


def _whole(checkpoint: Checkpoint, dtype: torch.dtype) -> int:
    """Bytes of all tensors in the files, once they are in `dtype`."""
    return sum(_nbytes(tensor, dtype) for _, tensor in checkpoint.tensors)


def _streamed(checkpoint: Checkpoint, dtype: torch.dtype) -> int | None:
    """Bytes that are in RAM at once on the way to a device; None for a model that has to be whole before it moves.

    The readers run ahead by a window, and a tensor leaves when all of it is there.
    """
    skeleton = Skeleton(find_architecture(checkpoint.directory, checkpoint.config), dtype)
    if not skeleton.is_plain(checkpoint.headers):
        return None
    return WINDOW_BYTES + max((_nbytes(tensor, dtype) for _, tensor in checkpoint.tensors), default=0)


def _nbytes(tensor: TensorEntry, dtype: torch.dtype) -> int:
    """Bytes of a stored tensor in memory: what holds floating-point numbers is converted to the model's dtype."""
    stored = TORCH_DTYPES.get(tensor.dtype)
    return tensor.elements * dtype.itemsize if stored is not None and stored.is_floating_point else tensor.nbytes


def _size(nbytes: int) -> str:
    return f"{nbytes} bytes ({nbytes / MIB:.1f} MiB)"

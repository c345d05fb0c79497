"""Whether the host has room for a load, or for a model that comes back from a device, told before anything is read.

Linux gives memory away before it has it: a load that does not fit does not fail, it gets the process killed.
"""

import logging
from dataclasses import replace

import torch

from vramscope.anatomy.header import TensorEntry
from vramscope.anatomy.parts import Part, chosen
from vramscope.anatomy.source import Checkpoint
from vramscope.devices.protocol import Device
from vramscope.errors import StepError
from vramscope.loading.assemble import find_architecture
from vramscope.loading.dtypes import TORCH_DTYPES
from vramscope.loading.reader import WINDOW_BYTES
from vramscope.loading.skeleton import Skeleton
from vramscope.memory.host import HostMemory, read_host
from vramscope.memory.resident import read_resident
from vramscope.settings import MIB, WorkerSettings

logger = logging.getLogger(__name__)

SHORTAGE_HINT = "take a smaller dtype, raise the container's memory limit, or load with force: true at your own risk"


def host_room(settings: WorkerSettings) -> HostMemory:
    """What the host has for us. Where nobody tells what is left, it is no more than the limit less our own part."""
    host, own = read_host(settings.cgroup_root, settings.proc_root), read_resident()
    if host.available_bytes is not None or host.limit_bytes is None or own is None:
        return host
    return replace(host, available_bytes=max(0, host.limit_bytes - own.anonymous_bytes))


def shortage(
    checkpoint: Checkpoint, dtype: torch.dtype, device: Device | None, host: HostMemory, part: Part | None = None
) -> str:
    """What a load to `device` (None: to RAM) needs and does not find; empty where it fits, and where nobody knows.

    With a `part` only that goes to the device. Raises PartError.
    """
    needed = _whole(checkpoint, dtype)
    short = shortage_of(needed, host)
    if short and device is not None and not device.shares_host_memory:
        short = shortage_of(min(needed, _streamed(checkpoint, dtype, part) or needed), host)
    return short


def shortage_of(needed_bytes: int, host: HostMemory) -> str:
    """What so many bytes of RAM do not find; empty where they fit, and where nobody knows."""
    if host.available_bytes is None or needed_bytes <= host.available_bytes:
        return ""
    limit = "" if host.limit_bytes is None else f" of a limit of {_size(host.limit_bytes)}"
    return f"it needs {_size(needed_bytes)} of RAM, and {_size(host.available_bytes)}{limit} are available"


def refuse(why: str, *, force: bool) -> None:
    """Raise StepError for a load that the host has no room for; only warn where the plan forces it."""
    if not force:
        raise StepError(why, hint=SHORTAGE_HINT)
    logger.warning("forced: %s", why)


def _whole(checkpoint: Checkpoint, dtype: torch.dtype) -> int:
    """Bytes of all tensors in the files, once they are in `dtype`."""
    return sum(_nbytes(tensor, dtype) for _, tensor in checkpoint.tensors)


def _streamed(checkpoint: Checkpoint, dtype: torch.dtype, part: Part | None) -> int | None:
    """Bytes that are in RAM at once on the way to a device; None for a model that has to be whole before it moves.

    The readers run ahead by a window, and a tensor leaves when all of it is there, unless it stays.
    """
    skeleton = Skeleton(find_architecture(checkpoint.directory, checkpoint.config), dtype)
    if not skeleton.is_plain(checkpoint.headers):
        return None
    tensors = skeleton.order(checkpoint.headers).tensors
    going = set(chosen(part, [tensor.name for tensor in tensors]))
    staying = sum(tensor.nbytes for index, tensor in enumerate(tensors) if index not in going)
    return staying + WINDOW_BYTES + max((_nbytes(tensor, dtype) for _, tensor in checkpoint.tensors), default=0)


def _nbytes(tensor: TensorEntry, dtype: torch.dtype) -> int:
    """Bytes of a stored tensor in memory: what holds floating-point numbers is converted to the model's dtype."""
    stored = TORCH_DTYPES.get(tensor.dtype)
    return tensor.elements * dtype.itemsize if stored is not None and stored.is_floating_point else tensor.nbytes


def _size(nbytes: int) -> str:
    return f"{nbytes} bytes ({nbytes / MIB:.1f} MiB)"

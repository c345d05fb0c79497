"""A move that runs out of memory halfway, and what is left of it. Runs in a process on the stub driver."""

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import torch
from side_by_side import DEVICE, MONITOR, SideBySide

from vramscope.devices.cuda import CudaDevice
from vramscope.devices.protocol import DeviceTensor
from vramscope.errors import OutOfMemoryError
from vramscope.loading.resident import ResidentModel


class WatchedDevice(CudaDevice):
    """The first CUDA device; remembers every copy that it makes, and keeps none."""

    def __init__(self) -> None:
        super().__init__(0)
        self.copies = 0
        self.traces: list[weakref.ref[Any]] = []

    @contextmanager
    def copying(self, memory_bytes: int) -> Iterator[Any]:
        with super().copying(memory_bytes) as transfer:
            yield WatchedTransfer(transfer, self)

    def note(self, held: DeviceTensor) -> None:
        self.copies += 1
        self.traces += [weakref.ref(held), weakref.ref(held.tensor), weakref.ref(held.tensor.untyped_storage())]

    @property
    def alive(self) -> int:
        return sum(trace() is not None for trace in self.traces)


class WatchedTransfer:
    """A transfer whose device hears of every tensor that it makes room for."""

    def __init__(self, transfer: Any, device: WatchedDevice) -> None:
        self._transfer = transfer
        self._device = device

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transfer, name)

    def room(self, like: torch.Tensor) -> DeviceTensor:
        held: DeviceTensor = self._transfer.room(like)
        self._device.note(held)
        return held


def break_move(side: SideBySide, name: str) -> dict[str, Any]:
    """Move a model for which there is no room, without garbage collection, and look while the error is still held."""
    device, model = WatchedDevice(), side.load(name, None)
    device.open()
    gc.collect()
    gc.disable()
    before = device.snapshot().allocator
    kept = _failure(model, device)
    after = device.snapshot().allocator
    found = {
        "error": str(kept),
        "copies": [device.copies, device.alive],
        "allocated": [before.allocated_bytes, after.allocated_bytes],
        "requested": [before.requested_bytes, after.requested_bytes],
        "ooms": after.ooms - before.ooms,
        "place": model.device_name,
        "linked": [kept.__context__, kept.__cause__],
        "held_by_frames": [type(value).__name__ for value in _locals(kept.__traceback__) if _is_copy(value)],
    }
    gc.enable()
    model.unload()
    return found


def _failure(model: ResidentModel, device: CudaDevice) -> OutOfMemoryError:
    try:
        model.move(device, MONITOR)
    except OutOfMemoryError as error:
        return error
    raise AssertionError("there was room for the model")


def _locals(traceback: TracebackType | None) -> Iterator[Any]:
    """Every local variable of the frames that an error holds, and what is in those that are lists."""
    while traceback is not None:
        for value in traceback.tb_frame.f_locals.values():
            yield value
            if isinstance(value, list):
                yield from value
        traceback = traceback.tb_next


def _is_copy(value: Any) -> bool:
    return isinstance(value, DeviceTensor) or (isinstance(value, torch.Tensor) and str(value.device) == DEVICE)

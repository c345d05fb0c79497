"""Copies whole tensors to and from a device through two slots of pinned memory: one is filled, one is in flight."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Protocol

import torch

from vramscope.devices.protocol import Device, DeviceTensor, Mark, Transfer, bytes_of
from vramscope.loading.arena import Arena
from vramscope.memory.rules import round_up

SLOTS = 2
# Large enough that starting a copy costs nothing against the copy: 16 MiB take 0.3 to 1.3 ms over PCIe 5 to 3.
SLOT_BYTES = 16 << 20
# Where the next tensor begins in a slot, and in an arena for tensors that come back.
ALIGNMENT_BYTES = 512

# How copies went: through pinned memory, by the driver's own staging, or not at all.
PINNED, PAGEABLE, NONE = "pinned", "pageable", "none"


class Copies(Protocol):
    """Copies of whole tensors. Nothing may be used, or released, before `finish`, or before the end of `copying`."""

    @property
    def staging(self) -> str: ...

    def upload(self, tensor: torch.Tensor) -> DeviceTensor:
        """Copy a tensor, which may change or go at once. Raises OutOfMemoryError with nothing taken for it."""

    def download(self, held: DeviceTensor, into: torch.Tensor) -> None:
        """Fill a tensor in host memory of the same shape and dtype."""

    def finish(self) -> None:
        """Wait until every copy has arrived."""


@contextmanager
def copying(device: Device, nbytes: int) -> Iterator[Copies]:
    """Copies of `nbytes` in all, as far as they pass through the host.

    At the end, however it comes, nothing is in flight and no pinned memory is left.
    """
    with device.copying(SLOTS * _slot_bytes(nbytes)) as transfer:
        if transfer is None:
            yield _Plain(device, NONE if device.shares_host_memory or not nbytes else PAGEABLE)
            return
        staged = _Staged(device, transfer)
        try:
            yield staged
        finally:
            staged.drop()


def room_on_host(tensors: Iterable[torch.Tensor]) -> tuple[Arena, list[torch.Tensor]]:
    """An arena, and in it tensors, each with the shape, strides and dtype of one of these, which have no gaps.

    Raises MemoryError. No memory is touched yet.
    """
    wanted, begins, end = list(tensors), [], 0
    for tensor in wanted:
        begins.append(end)
        end += round_up(tensor.nbytes, ALIGNMENT_BYTES)
    arena = Arena(end)
    return arena, [
        arena.memory[begin : begin + tensor.nbytes].view(tensor.dtype).as_strided(tensor.shape, tensor.stride())
        for begin, tensor in zip(begins, wanted, strict=True)
    ]


class _Plain:
    """One tensor after the other, by the device itself."""

    def __init__(self, device: Device, staging: str) -> None:
        self._device = device
        self.staging = staging

    def upload(self, tensor: torch.Tensor) -> DeviceTensor:
        return self._device.upload(tensor)

    def download(self, held: DeviceTensor, into: torch.Tensor) -> None:
        self._device.download(held, into)

    def finish(self) -> None:
        self._device.synchronize()


class _Slot:
    """A piece of pinned memory, and the copies out of the device that it has to pass on."""

    def __init__(self, memory: torch.Tensor) -> None:
        self._memory = memory
        self._used = 0
        self._mark: Mark | None = None
        self._landing: list[tuple[torch.Tensor, torch.Tensor]] = []

    @property
    def is_full(self) -> bool:
        return self._used >= len(self._memory)

    def cut(self, nbytes: int) -> torch.Tensor:
        """The next free bytes, as many as there are."""
        part = self._memory[self._used : self._used + nbytes]
        self._used += round_up(len(part), ALIGNMENT_BYTES)
        return part

    def land(self, part: torch.Tensor, into: torch.Tensor) -> None:
        """Say where a part goes when it has come from the device."""
        self._landing.append((part, into))

    def leave(self, mark: Mark) -> None:
        """Nothing more goes in here before `settle`."""
        self._mark = mark

    def settle(self) -> None:
        """Wait for the copies of this slot, pass on what came, and begin anew."""
        if self._mark is not None:
            self._mark.wait()
        for part, into in self._landing:
            into.copy_(part)
        self.drop()

    def drop(self) -> None:
        self._used, self._mark = 0, None
        self._landing.clear()


class _Staged:
    """Through the slots of a transfer's memory in turn. Several small tensors share one, and a large one fills many."""

    staging = PINNED

    def __init__(self, device: Device, transfer: Transfer) -> None:
        self._device = device
        self._transfer = transfer
        half = len(transfer.memory) // SLOTS
        self._slots = [_Slot(transfer.memory[n * half : (n + 1) * half]) for n in range(SLOTS)]

    def upload(self, tensor: torch.Tensor) -> DeviceTensor:
        if not tensor.is_cpu:  # from one device to another
            return self._device.upload(tensor)
        held = self._transfer.room(tensor)
        source = bytes_of(_without_gaps(tensor, held.tensor))
        for start, part in self._parts(len(source)):
            part.copy_(source[start : start + len(part)])
            self._transfer.send(part, held, start)
        return held

    def download(self, held: DeviceTensor, into: torch.Tensor) -> None:
        target = bytes_of(into)
        for start, part in self._parts(len(target)):
            self._transfer.fetch(held, start, part)
            self._slots[0].land(part, target[start : start + len(part)])

    def finish(self) -> None:
        self._slots[0].leave(self._transfer.mark())
        for slot in reversed(self._slots):  # the older copies first
            slot.settle()
        self._transfer.finish()
        self._device.synchronize()  # an error of anything else on the device belongs to this step, too

    def drop(self) -> None:
        """Hold no memory any more, for an error may hold this."""
        while self._slots:
            self._slots.pop().drop()

    def _parts(self, nbytes: int) -> Iterator[tuple[int, torch.Tensor]]:
        """Free pieces of slots for so many bytes, and where in them each begins; the first slot is in use."""
        start = 0
        while start < nbytes:
            if self._slots[0].is_full:
                self._slots[0].leave(self._transfer.mark())
                self._slots.append(self._slots.pop(0))
                self._slots[0].settle()
            part = self._slots[0].cut(nbytes - start)
            yield start, part
            start += len(part)


def _without_gaps(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The tensor, or a copy of it that lies in memory as the device's does."""
    if tensor.stride() == like.stride() and not tensor.is_conj() and not tensor.is_neg():
        return tensor
    return torch.empty_strided(like.shape, like.stride(), dtype=tensor.dtype).copy_(tensor)


def _slot_bytes(nbytes: int) -> int:
    """A slot that takes half of a small model."""
    return min(SLOT_BYTES, round_up(-(-nbytes // SLOTS), ALIGNMENT_BYTES))

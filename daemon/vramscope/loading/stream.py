"""Puts a model on a device while its files are read; at no time is all of it in host memory."""

from collections.abc import Collection
from dataclasses import dataclass, field

from vramscope.devices.protocol import Device, DeviceTensor, Mark, Transfer
from vramscope.loading.arena import Arena
from vramscope.loading.monitor import Monitor
from vramscope.loading.order import Slot
from vramscope.loading.skeleton import Skeleton
from vramscope.loading.spans import PIECE_BYTES
from vramscope.loading.staging import NONE, PAGEABLE, PINNED
from vramscope.loading.weights import Reading, StagedWeights

# The pinned memory into which the files are read. Two pieces are the least: one is read while another is copied.
RING_PIECES = 16


@dataclass(frozen=True, kw_only=True)
class _Waiting:
    """A stored tensor: its bytes in the arena, and whose they are. All offsets are the arena's."""

    begin: int
    end: int
    index: int


@dataclass
class _Arrivals:
    """The device's tensors by the index of their slots; those that do not go there stay in the arena."""

    device: Device
    slots: tuple[Slot, ...]
    going: frozenset[int]
    held: dict[int, DeviceTensor] = field(default_factory=dict)

    def upload(self, index: int) -> None:
        self.held[index] = self.device.upload(self.slots[index].tensor)

    def give_back(self) -> None:
        while self.held:
            self.device.release(self.held.pop(next(iter(self.held))))


class Stream:
    """A model over an arena that nothing was read into yet, on its way to a device: what lies in the slots `going`.

    Where memory can be pinned the files are read into a ring of it, from which the device copies: the arena is no more
    than addresses. Elsewhere they are read into the arena, whose pages go when the device has what was in them.
    """

    def __init__(self, places: tuple[Slot, ...], staged: StagedWeights, device: Device, going: Collection[int]) -> None:
        self.staging = NONE
        self._device = device
        self._slots = places
        self._staged = staged
        self._arrivals = _Arrivals(device, places, frozenset(going))
        base = staged.arena.memory.data_ptr()
        at = {base + place.offset: place for place in staged.layout.places.values() if place.entry.elements}
        found = ((slot.tensor.data_ptr(), index) for index, slot in enumerate(places))
        # In file order, which is the arena's.
        self._waiting = [
            _Waiting(begin=at[pointer].offset, end=at[pointer].end, index=index)
            for pointer, index in sorted(found)
            if pointer in at
        ]

    @property
    def _going_bytes(self) -> int:
        """Bytes that are copied to the device while the files are read."""
        return sum(
            self._slots[each.index].tensor.nbytes for each in self._waiting if each.index in self._arrivals.going
        )

    def covers(self, skeleton: Skeleton) -> bool:
        """Whether every stored tensor that the model has is in the module as it lies in the arena."""
        ends = {waiting.end for waiting in self._waiting}
        return all(
            place.end in ends
            for name, place in self._staged.layout.places.items()
            if place.entry.elements and skeleton.dtype_of(name) is not None
        )

    def run(self, monitor: Monitor) -> tuple[dict[int, DeviceTensor], Reading]:
        """Put each tensor that goes on the device as soon as it is read, in file order, then what no file holds.

        Returns what the device has, by the index of the slot, and how it was read.
        """
        try:
            if not self._device.is_open:
                with monitor.phase("context"):
                    self._device.open()
            monitor.enter_phase("read")
            with self._device.copying(_ring_bytes(self._staged.layout.arena_bytes)) as transfer:
                reading = self._read(transfer, monitor)
            return self._finish(monitor), reading
        except BaseException:
            self._arrivals.give_back()
            raise

    def _read(self, transfer: Transfer | None, monitor: Monitor) -> Reading:
        if transfer is None:
            self.staging = NONE if self._device.shares_host_memory else PAGEABLE
            take = _ThroughArena(self._waiting, self._arrivals, self._staged.arena).take
            return self._staged.fill(monitor, take=take, taken_bytes=self._going_bytes)
        self.staging = PINNED
        ring = _ThroughRing(self._waiting, self._arrivals, self._staged.arena, transfer)
        try:
            memory = memoryview(transfer.memory.numpy())  # type: ignore[arg-type]
            return self._staged.fill(monitor, take=ring.take, taken_bytes=self._going_bytes, ring=memory)
        finally:
            ring.drop()

    def _finish(self, monitor: Monitor) -> dict[int, DeviceTensor]:
        """Upload what no file holds, wait for all copies, and let the module use them."""
        held = self._arrivals.held
        for index in sorted(self._arrivals.going - held.keys()):
            self._arrivals.upload(index)
        with monitor.phase("synchronize"):
            self._device.synchronize()
        for index, arrived in held.items():
            self._slots[index].assign(arrived.tensor)
        return held


class _ThroughArena:
    """Uploads whole tensors."""

    def __init__(self, waiting: list[_Waiting], arrivals: _Arrivals, arena: Arena) -> None:
        self._waiting = waiting
        self._arrivals = arrivals
        self._arena = arena
        self._next = 0
        self._emptied = 0

    def take(self, ready: int) -> int:
        """Upload what lies below this offset and goes, and let the arena's pages go where the device has a copy."""
        end = self._emptied
        while self._next < len(self._waiting) and self._waiting[self._next].end <= ready:
            waiting = self._waiting[self._next]
            if waiting.index in self._arrivals.going:
                self._arrivals.upload(waiting.index)
            else:
                self._discard(waiting.begin)
                self._emptied = waiting.end  # what stays is passed over
            end = waiting.end
            self._next += 1
        self._discard(end)
        return ready

    def _discard(self, end: int) -> None:
        if not self._arrivals.device.shares_host_memory:
            self._emptied = self._arena.discard(self._emptied, end)


class _ThroughRing:
    """Copies what was read, tensors or pieces of them, while the readers fill the rest of the ring."""

    def __init__(self, waiting: list[_Waiting], arrivals: _Arrivals, arena: Arena, transfer: Transfer) -> None:
        self._waiting = waiting
        self._arrivals = arrivals
        self._arena = arena
        self._transfer: Transfer = transfer
        self._memory = transfer.memory
        self._next = 0
        self._sent = 0
        self._taken = 0
        self._in_flight: list[tuple[int, Mark]] = []

    def take(self, ready: int) -> int:
        """Start to copy all below this offset; returns up to where the copies are done, waiting for older ones."""
        if ready > self._sent:
            self._send(self._sent, ready)
            self._sent = ready
            self._in_flight.append((ready, self._transfer.mark()))
            if len(self._in_flight) == 1:
                return self._taken  # the readers may have something new before this one has arrived
        if self._in_flight:
            self._taken, mark = self._in_flight.pop(0)
            mark.wait()
        return self._taken

    def drop(self) -> None:
        """Hold no memory any more, for an error may hold this."""
        self._memory = self._memory[:0].clone()
        self._in_flight.clear()

    def _send(self, start: int, end: int) -> None:
        for waiting in self._waiting[self._next :]:
            if waiting.begin >= end:
                break
            self._send_part(waiting, max(start, waiting.begin), min(end, waiting.end))
        while self._next < len(self._waiting) and self._waiting[self._next].end <= end:
            self._next += 1

    def _send_part(self, waiting: _Waiting, start: int, end: int) -> None:
        held, index, length = self._arrivals.held, waiting.index, len(self._memory)
        if index in self._arrivals.going and index not in held:
            held[index] = self._transfer.room(self._arrivals.slots[index].tensor)
        while start < end:
            place = start % length
            part = self._memory[place : min(length, place + end - start)]
            if index in held:
                self._transfer.send(part, held[index], start - waiting.begin)
            else:
                self._arena.memory[start : start + len(part)].copy_(part)
            start += len(part)


def _ring_bytes(nbytes: int) -> int:
    """As much as the model takes, in whole pieces, at least 2 and at most RING_PIECES of them."""
    return PIECE_BYTES * min(RING_PIECES, max(2, -(-nbytes // PIECE_BYTES)))

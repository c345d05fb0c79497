"""A device whose copies happen as late as they may: when somebody waits for them, and not a moment before.

What was overwritten, read or released too early shows as wrong contents, or in `released_in_flight`. Its tensors are in
shared memory, as those of tests/devices/mapped.py.
"""

from contextlib import contextmanager

import torch
from tests.devices.mapped import shared_like
from tests.loading.copying import CopyingDevice

from vramscope.devices.protocol import DeviceTensor, bytes_of


class LateDevice(CopyingDevice):
    """Pins as much memory as it is asked for: `pinned` bytes now, and at most `most_pinned`."""

    def __init__(self, name="cuda:0", **card):
        super().__init__(name, **card)
        self.queue = []
        self.released_in_flight = 0
        self.pinned = self.most_pinned = 0

    @contextmanager
    def copying(self, memory_bytes):
        self.open()
        transfer = LateTransfer(self, memory_bytes)
        self.pinned += memory_bytes
        self.most_pinned = max(self.most_pinned, self.pinned)
        try:
            yield transfer
            transfer.finish()
        finally:
            self.run_all()
            self.pinned -= memory_bytes
            transfer.memory.fill_(0xAA)
            transfer.memory = transfer.memory[:0].clone()

    def release(self, held):
        self.released_in_flight += bool(self.queue)
        super().release(held)

    def run_all(self, count=None):
        """Do the oldest copies."""
        for _ in range(len(self.queue) if count is None else count):
            target, source = self.queue.pop(0)
            target.copy_(source)


class LateTransfer:
    def __init__(self, device, memory_bytes):
        self._device = device
        self._done = self._started = 0
        self.memory = torch.full((memory_bytes,), 0xAA, dtype=torch.uint8)

    def room(self, like):
        held = super(CopyingDevice, self._device).upload(shared_like(like))
        self._device.note(like, held)
        bytes_of(held.tensor).fill_(0xAA)
        return DeviceTensor(held.tensor, held.pointer)

    def send(self, source, held, start):
        assert source.untyped_storage().data_ptr() == self.memory.untyped_storage().data_ptr()
        self._start(bytes_of(held.tensor)[start : start + len(source)], source)

    def fetch(self, held, start, into):
        assert into.untyped_storage().data_ptr() == self.memory.untyped_storage().data_ptr()
        self._start(into, bytes_of(held.tensor)[start : start + len(into)])

    def mark(self):
        return LateMark(self, self._started)

    def finish(self):
        self.catch_up(self._started)

    def catch_up(self, count):
        """Have the first copies done, by their number."""
        missing = max(0, count - self._done)
        self._device.run_all(missing)
        self._done += missing

    def _start(self, target, source):
        self._device.queue.append((target, source))
        self._started += 1


class LateMark:
    def __init__(self, transfer, count):
        self._transfer, self._count = transfer, count

    def wait(self):
        self._transfer.catch_up(self._count)

"""A simulated device that does copy tensors, as a real one does."""

import weakref

from vramscope.devices.simulated import SimulatedCard, SimulatedDevice

MIB = 1 << 20


class CopyingDevice(SimulatedDevice):
    """Remembers in which order tensors came, and which copies of them were made."""

    def __init__(self, name="cuda:0", capacity_bytes=64 * MIB):
        super().__init__(name, SimulatedCard(capacity_bytes=capacity_bytes, context_bytes=MIB))
        self.shares_host_memory = False
        self.uploaded = []
        self.uploaded_bytes = []
        self.copies = []

    def upload(self, tensor):
        held = super().upload(tensor.clone())
        self.note(tensor, held)
        return held

    def note(self, tensor, held):
        """Remember a tensor and its copy."""
        self.uploaded.append(tensor.data_ptr())
        self.uploaded_bytes.append(tensor.nbytes)
        self.copies.append(weakref.ref(held.tensor.untyped_storage()))

    def download(self, held, into):
        super().download(held, into)

    @property
    def allocated_bytes(self):
        return self.snapshot().allocator.allocated_bytes

    @property
    def live_copies(self):
        return sum(copy() is not None for copy in self.copies)

"""A real device: torch's CUDA build, its caching allocator, and nothing of our own in between."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from vramscope.devices.cuda_call import call
from vramscope.devices.cuda_transfer import CudaTransfer
from vramscope.devices.own import context_taken, settled
from vramscope.devices.pinned import pin
from vramscope.devices.protocol import DeviceTensor
from vramscope.memory.snapshot import AllocatorMemory, DeviceFacts, DeviceSnapshot, DriverMemory

AskDriver = Callable[[DeviceFacts], DriverMemory | None]

BACKEND = "cuda"
# The one of torch's allocators that has a snapshot of its blocks: PYTORCH_ALLOC_CONF may choose cudaMallocAsync.
NATIVE = "native"
# What torch.cuda.memory_snapshot() calls a block that a tensor has; others wait for a stream, or are free.
ALLOCATED = "active_allocated"


def _unknown(_facts: DeviceFacts) -> DriverMemory | None:
    return None


class CudaDevice:
    """One CUDA device, addressed by torch's ordinal; every call runs under that device.

    `ask_driver` is asked with every snapshot, so that allocator and driver are seen at the same moment: the worker
    allocates nothing meanwhile.
    """

    def __init__(self, ordinal: int, ask_driver: AskDriver = _unknown) -> None:
        self.name = f"cuda:{ordinal}"
        self.backend = BACKEND
        self.shares_host_memory = False
        self.is_open = False
        self._context_bytes: int | None = None
        self._device = torch.device("cuda", ordinal)
        self._ask_driver = ask_driver
        self._side: torch.cuda.Stream | None = None

    def open(self) -> None:
        if self.is_open:
            return
        before = self._ask_driver(self.facts())
        call(f"opening a context on {self.name}", torch.cuda.synchronize, self._device)
        self._side = call(f"making a stream on {self.name}", torch.cuda.Stream, self._device)  # part of the context
        self.is_open = True
        self._context_bytes = context_taken(before, self._ask_driver(self.facts()))

    def upload(self, tensor: torch.Tensor) -> DeviceTensor:
        self.open()
        return DeviceTensor(call(f"copying {tensor.nbytes} bytes to {self.name}", tensor.to, self._device))

    def download(self, held: DeviceTensor, into: torch.Tensor) -> None:
        call(f"copying from {self.name}", into.copy_, held.tensor)

    def release(self, held: DeviceTensor) -> None:
        """torch frees the block when the last reference is gone, which is the caller's."""

    @contextmanager
    def copying(self, memory_bytes: int) -> Iterator[CudaTransfer | None]:
        self.open()
        pinned = pin(memory_bytes, self._device) if memory_bytes else None
        if pinned is None or self._side is None:
            yield None
            return
        transfer = CudaTransfer(self._device, self._side, pinned)
        try:
            transfer.begin()
            yield transfer
            transfer.finish()
        finally:
            transfer.close()

    def synchronize(self) -> None:
        call(f"waiting for {self.name}", torch.cuda.synchronize, self._device)

    def empty_cache(self) -> None:
        # Only under its own device, and only where a context exists: torch.cuda.empty_cache() opens one on the
        # current device (https://github.com/pytorch/pytorch/issues/25752).
        if self.is_open:
            with torch.cuda.device(self._device):
                call(f"emptying the cache of {self.name}", torch.cuda.empty_cache)

    def reset_peak(self) -> None:
        if self.is_open:
            torch.cuda.reset_peak_memory_stats(self._device)

    def snapshot(self) -> DeviceSnapshot:
        allocator = self._allocator() if self.is_open else AllocatorMemory()
        driver = self._ask_driver(self.facts())
        if driver is not None:
            driver = settled(driver, allocator.reserved_bytes, self._context_bytes, is_open=self.is_open)
        return DeviceSnapshot(
            device=self.name, backend=BACKEND, allocator=allocator, driver=driver, is_open=self.is_open
        )

    def _allocator(self) -> AllocatorMemory:
        stats = torch.cuda.memory_stats(self._device)
        return AllocatorMemory(
            allocated_bytes=stats["allocated_bytes.all.current"],
            reserved_bytes=stats["reserved_bytes.all.current"],
            requested_bytes=stats["requested_bytes.all.current"],
            active_bytes=stats["active_bytes.all.current"],
            inactive_split_bytes=stats["inactive_split_bytes.all.current"],
            allocated_peak_bytes=stats["allocated_bytes.all.peak"],
            reserved_peak_bytes=stats["reserved_bytes.all.peak"],
            alloc_retries=stats["num_alloc_retries"],
            ooms=stats["num_ooms"],
        )

    def live(self) -> dict[int, int] | None:
        if not self.is_open:
            return {}
        if torch.cuda.get_allocator_backend() != NATIVE:
            return None
        segments = call(f"looking at the segments of {self.name}", torch.cuda.memory_snapshot)
        segments = [each for each in segments if each["device"] == self._device.index]
        blocks = (block for segment in segments for block in segment["blocks"])
        return {block["address"]: block["requested_size"] for block in blocks if block["state"] == ALLOCATED}

    def address(self, held: DeviceTensor) -> int | None:
        return held.tensor.untyped_storage().data_ptr() or None

    def facts(self) -> DeviceFacts:
        properties = torch.cuda.get_device_properties(self._device)
        # Both names come from torch's own structure; older builds lack the PCI fields.
        domain, bus, slot = (
            getattr(properties, field, None) for field in ("pci_domain_id", "pci_bus_id", "pci_device_id")
        )
        pci = f"{domain:08x}:{bus:02x}:{slot:02x}.0" if None not in (domain, bus, slot) else ""
        uuid = str(getattr(properties, "uuid", ""))
        return DeviceFacts(
            device=self.name,
            backend=BACKEND,
            name=properties.name,
            uuid=f"GPU-{uuid}" if uuid and not uuid.startswith(("GPU-", "MIG-")) else uuid,
            pci_bus_id=pci,
            total_bytes=properties.total_memory,
        )

"""A model in memory: where each of its tensors lives, and how they move together or not at all."""

import gc
import time
from collections import defaultdict
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass

import torch
from torch import nn

from vramscope.anatomy.components import component_of
from vramscope.devices.protocol import Device, DeviceTensor
from vramscope.errors import StepError
from vramscope.loading.arena import trim_heap
from vramscope.loading.monitor import Monitor
from vramscope.loading.order import slots
from vramscope.loading.staging import NONE, Copies, copying, room_on_host
from vramscope.memory.snapshot import ModelSnapshot, ParameterGroup, Residency

HOST = "cpu"


@dataclass(frozen=True, kw_only=True)
class Moved:
    """One move: how many bytes were copied, and how long that took; opening the device's context is no part of it.

    `staging` says how: through pinned memory, by the driver's own (pageable), or not at all (none).
    """

    nbytes: int = 0
    seconds: float = 0.0
    staging: str = NONE


@dataclass(frozen=True, kw_only=True)
class ModelIdentity:
    """What a loaded model is, as far as its files tell. Sizes in bytes; None is unknown."""

    model: str
    architecture: str
    dtype: str
    quantization: str
    revision: str
    file_bytes: int
    file_elements: int
    context_window_tokens: int | None


def nbytes_of(tensor: torch.Tensor) -> int:
    """Bytes of a tensor's elements, which is what a device is asked for when it moves."""
    return tensor.numel() * tensor.element_size()


class ResidentModel:
    """A loaded model. It is on the host or, as a whole, on one device.

    `held` are the device's tensors in the order of the module's slots, for a module that is on `device` already.
    """

    def __init__(
        self,
        identity: ModelIdentity,
        module: nn.Module,
        device: Device | None = None,
        held: Sequence[DeviceTensor] = (),
    ) -> None:
        self.identity = identity
        self._slots = slots(module)
        self._device = device
        self._held = list(held)
        self._module = module

    @property
    def device_name(self) -> str:
        return self._device.name if self._device else HOST

    @property
    def nbytes(self) -> int:
        return sum(nbytes_of(slot.tensor) for slot in self._slots)

    @property
    def is_in_host_memory(self) -> bool:
        """Whether the tensors take RAM: those of a simulated device do."""
        return self._device is None or self._device.shares_host_memory

    def addresses(self, device: Device) -> set[int]:
        """Where this model's tensors lie on `device`."""
        if self._device is not device:
            return set()
        return {address for held in self._held if (address := device.address(held)) is not None}

    def storages(self) -> set[int]:
        """The addresses of the memory that the module's tensors are views of."""
        return {slot.tensor.untyped_storage().data_ptr() for slot in self._slots}

    def move(self, device: Device | None, monitor: Monitor) -> Moved:
        """Move every tensor to `device` (None: host memory), in Module.to()'s order.

        All or nothing: if the device runs out of memory, or the step is cancelled, what was taken is given back and
        the model stays where it was.
        """
        source = self._device
        if device is source:
            return Moved()
        if device is not None and not device.is_open:
            with monitor.phase("context"):
                device.open()
        arrived: list[DeviceTensor] = []
        began = time.perf_counter()
        try:
            staging = self._copy(device, arrived, monitor)
        except BaseException:
            if device is not None:
                _release_all(device, arrived)
            arrived.clear()
            raise
        seconds = time.perf_counter() - began
        self._commit(device, arrived)
        return Moved(nbytes=self.nbytes, seconds=seconds, staging=staging)

    def _copy(self, device: Device | None, arrived: list[DeviceTensor], monitor: Monitor) -> str:
        """Fill `arrived` with a copy of every tensor on `device`, or on the host, and wait until all are there.

        Returns how they were staged. However it ends, no copy is in flight any more.
        """
        done, total = 0, self.nbytes
        with ExitStack() as opened:
            with monitor.phase("copy") as phase:
                phase.nbytes = total
                copies = opened.enter_context(self._copies(device, total))
                if device is None:
                    arrived += self._room_on_host()
                for index, slot in enumerate(self._slots):
                    monitor.check_cancelled()
                    if device is None:
                        copies.download(self._held[index], arrived[index].tensor)
                    else:
                        arrived.append(copies.upload(slot.tensor))
                    done += nbytes_of(slot.tensor)
                    monitor.progress(done, total)
            with monitor.phase("synchronize"):
                copies.finish()
                opened.close()
        return copies.staging

    def _copies(self, device: Device | None, total: int) -> AbstractContextManager[Copies]:
        if device is not None:
            return copying(device, total if self._device is None else 0)  # from device to device nothing is staged
        return copying(self._on(), total)

    def _room_on_host(self) -> list[DeviceTensor]:
        """Where the tensors of the device go: to one arena, or nowhere if they are in host memory already."""
        tensors = [held.tensor for held in self._held]
        return [DeviceTensor(each) for each in (tensors if self.is_in_host_memory else room_on_host(tensors))]

    def _on(self) -> Device:
        if self._device is None:
            raise StepError(f"model {self.identity.model!r} is on no device")
        return self._device

    def _commit(self, device: Device | None, arrived: list[DeviceTensor]) -> None:
        """Let the module use the copies, then let go of the originals."""
        for slot, tensor in zip(self._slots, arrived, strict=True):
            slot.assign(tensor.tensor)
        if self._device is not None:
            _release_all(self._device, self._held)
        self._held = arrived if device is not None else []
        self._device = device

    def unload(self) -> None:
        """Let go of every tensor, and give the memory back to the system at once, reference cycles included."""
        if self._device is not None:
            _release_all(self._device, self._held)
        self._held = []
        self._slots = ()
        del self._module
        self._device = None
        gc.collect()
        trim_heap()

    def snapshot(self) -> ModelSnapshot:
        groups: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        buffers: dict[str, int] = defaultdict(int)
        for slot in self._slots:
            tensor = slot.tensor
            if slot.is_buffer:
                buffers[self.device_name] += nbytes_of(tensor)
            else:
                group = groups[component_of(slot.name), str(tensor.dtype).removeprefix("torch.")]
                group[0] += tensor.numel()
                group[1] += nbytes_of(tensor)
        return ModelSnapshot(
            model=self.identity.model,
            residency=Residency.DEVICE if self._device else Residency.HOST,
            architecture=self.identity.architecture,
            dtype=self.identity.dtype,
            quantization=self.identity.quantization,
            revision=self.identity.revision,
            groups=tuple(
                ParameterGroup(
                    component=component, dtype=dtype, device=self.device_name, parameters=count, nbytes=nbytes
                )
                for (component, dtype), (count, nbytes) in sorted(groups.items())
            ),
            buffer_bytes=dict(buffers),
            file_bytes=self.identity.file_bytes,
            file_elements=self.identity.file_elements,
            context_window_tokens=self.identity.context_window_tokens,
            tensors=len(self._slots),
        )


def _release_all(device: Device, held: list[DeviceTensor]) -> None:
    """Give back blocks in the order in which they were taken, as Module.to("cpu") does."""
    held.reverse()
    while held:
        device.release(held.pop())

"""A model in memory: where each of its tensors lives, and how those of a move go together or not at all."""

import gc
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field

from torch import nn

from vramscope.anatomy.components import component_of
from vramscope.anatomy.parts import Part, chosen
from vramscope.devices.protocol import Device, DeviceTensor
from vramscope.loading.arena import Arena, trim_heap
from vramscope.loading.monitor import Monitor
from vramscope.loading.order import slots
from vramscope.loading.staging import NONE, PAGEABLE, PINNED, Copies, copying, room_on_host
from vramscope.memory.snapshot import HOST, MIXED, ModelSnapshot, ParameterGroup, Residency


@dataclass(frozen=True, kw_only=True)
class Moved:
    """One move: how many bytes were copied, and how long that took; opening the device's context is no part of it.

    `source` is where they were, or MIXED; `tensors` is 0 where all were there already. `staging` says how they went:
    through pinned memory, by the driver's own (pageable), or not at all (none).
    """

    source: str
    nbytes: int = 0
    seconds: float = 0.0
    staging: str = NONE
    tensors: int = 0


@dataclass(frozen=True, eq=False)
class _Held:
    """A tensor that is not in host memory."""

    device: Device
    tensor: DeviceTensor


@dataclass
class _Move:
    """The tensors of one move: their slots, and what has arrived of them so far, both in the order of the copies.

    `arena` is the memory of those that come back to the host.
    """

    indices: Sequence[int]
    nbytes: int
    arrived: list[DeviceTensor] = field(default_factory=list)
    arena: Arena | None = None


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


class ResidentModel:
    """A loaded model. Each of its tensors is on the host or on a device; a part moves as a whole or not at all.

    `held` are the tensors that are on `device` already, by the index of their slot; the others are on the host.
    `arena` is the memory that they were loaded into. Of that, and of what they come back to, a part that leaves the
    host gives its own back.
    """

    def __init__(
        self,
        identity: ModelIdentity,
        module: nn.Module,
        device: Device | None = None,
        held: Mapping[int, DeviceTensor] | None = None,
        arena: Arena | None = None,
    ) -> None:
        self.identity = identity
        self._slots = slots(module)
        self._held = {} if device is None else {index: _Held(device, tensor) for index, tensor in (held or {}).items()}
        self._module = module
        self._arenas = [arena] if arena else []
        self._trim_arenas()

    @property
    def device_name(self) -> str:
        """Where all tensors are, or MIXED."""
        return self._place_of(range(len(self._slots)))

    @property
    def nbytes(self) -> int:
        return self._nbytes_of(range(len(self._slots)))

    @property
    def host_nbytes(self) -> int:
        """Bytes of the tensors that take RAM: those of a simulated device do."""
        return self._nbytes_of(self._in_host_memory())

    def nbytes_on(self, device: Device) -> int:
        return self._nbytes_of([index for index, held in self._held.items() if held.device is device])

    def returning_nbytes(self, part: Part | None) -> int:
        """Bytes of RAM that a move of the part to the host would take. Raises PartError."""
        there = set(self._in_host_memory())
        return self._nbytes_of([index for index in self._chosen(part) if index not in there])

    def addresses(self, device: Device) -> set[int]:
        """Where this model's tensors lie on `device`."""
        held = (each.tensor for each in self._held.values() if each.device is device)
        return {address for tensor in held if (address := device.address(tensor)) is not None}

    def storages(self) -> set[int]:
        """The addresses of the memory that the module's tensors in RAM are views of."""
        return {self._slots[index].tensor.untyped_storage().data_ptr() for index in self._in_host_memory()}

    def move(self, device: Device | None, monitor: Monitor, part: Part | None = None) -> Moved:
        """Move a part (None: all) to `device` (None: host memory), what is not there yet, in Module.to()'s order.

        All or nothing: if the device runs out of memory, or the step is cancelled, what was taken is given back and
        every tensor stays where it was. Raises PartError for a part that the model does not have.
        """
        indices = [index for index in self._chosen(part) if self._device_of(index) is not device]
        if not indices:
            return Moved(source=device.name if device else HOST)
        move = _Move(indices, self._nbytes_of(indices))
        if device is not None and not device.is_open:
            with monitor.phase("context"):
                device.open()
        began = time.perf_counter()
        try:
            staging = self._copy(device, move, monitor)
        except BaseException:
            if device is not None:
                _release_all([_Held(device, tensor) for tensor in move.arrived])
            move.arrived.clear()
            move.arena = None
            raise
        seconds, source = time.perf_counter() - began, self._place_of(indices)
        self._commit(device, move)
        return Moved(source=source, nbytes=move.nbytes, seconds=seconds, staging=staging, tensors=len(indices))

    def _copy(self, device: Device | None, move: _Move, monitor: Monitor) -> str:
        """Fill `move.arrived` with copies on `device`, or on the host, and wait until all are there.

        Returns how they were staged. However it ends, no copy is in flight any more.
        """
        done = 0
        with ExitStack() as opened:
            with monitor.phase("copy") as phase:
                phase.nbytes = move.nbytes
                ways = self._open_ways(device, move, opened)
                if device is None:
                    self._make_room_on_host(move)
                for position, index in enumerate(move.indices):
                    monitor.check_cancelled()
                    tensor = self._slots[index].tensor
                    if device is not None:
                        move.arrived.append(ways[device].upload(tensor))
                    else:
                        held = self._held[index]
                        ways[held.device].download(held.tensor, move.arrived[position].tensor)
                    done += tensor.nbytes
                    monitor.progress(done, move.nbytes)
            with monitor.phase("synchronize"):
                for way in ways.values():
                    way.finish()
                opened.close()
        stagings = {way.staging for way in ways.values()}
        return next((each for each in (PAGEABLE, PINNED) if each in stagings), NONE)

    def _open_ways(self, device: Device | None, move: _Move, opened: ExitStack) -> dict[Device, Copies]:
        """Copies to the device, or from each of those where the tensors are; between devices nothing is staged."""
        if device is not None:
            from_host = self._nbytes_of([index for index in move.indices if index not in self._held])
            return {device: opened.enter_context(copying(device, from_host))}
        nbytes: dict[Device, int] = defaultdict(int)
        for index in move.indices:
            nbytes[self._held[index].device] += self._slots[index].tensor.nbytes
        return {source: opened.enter_context(copying(source, total)) for source, total in nbytes.items()}

    def _make_room_on_host(self, move: _Move) -> None:
        """Say where tensors go that come back: to one arena, or nowhere if they are in host memory already."""
        held = [self._held[index] for index in move.indices]
        rooms = [each.tensor.tensor for each in held]
        if not all(each.device.shares_host_memory for each in held):
            move.arena, rooms = room_on_host(rooms)
        move.arrived += map(DeviceTensor, rooms)

    def _commit(self, device: Device | None, move: _Move) -> None:
        """Let the module use the copies, then let go of the originals."""
        originals = [self._held.pop(index) for index in move.indices if index in self._held]
        for index, tensor in zip(move.indices, move.arrived, strict=True):
            self._slots[index].assign(tensor.tensor)
            if device is not None:
                self._held[index] = _Held(device, tensor)
        move.arrived.clear()
        if move.arena is not None:
            self._arenas.append(move.arena)
        _release_all(originals)
        self._trim_arenas()

    def _trim_arenas(self) -> None:
        """Give back what no tensor in RAM needs of the memory that the model was loaded, or came back, into."""
        staying = [self._slots[index].tensor for index in self._in_host_memory()]
        for arena in self._arenas:
            arena.keep_only(staying)
        self._arenas = [arena for arena in self._arenas if any(arena.holds(tensor) for tensor in staying)]

    def unload(self) -> None:
        """Let go of every tensor, and give the memory back to the system at once, reference cycles included."""
        _release_all([self._held.pop(index) for index in sorted(self._held)])
        self._slots = ()
        del self._module
        self._arenas.clear()
        gc.collect()
        trim_heap()

    def _chosen(self, part: Part | None) -> Sequence[int]:
        return chosen(part, [slot.name for slot in self._slots])

    def _device_of(self, index: int) -> Device | None:
        held = self._held.get(index)
        return held.device if held else None

    def _place_name(self, index: int) -> str:
        device = self._device_of(index)
        return device.name if device else HOST

    def _place_of(self, indices: Sequence[int]) -> str:
        places = {self._place_name(index) for index in indices}
        return places.pop() if len(places) == 1 else MIXED if places else HOST

    def _nbytes_of(self, indices: Sequence[int]) -> int:
        return sum(self._slots[index].tensor.nbytes for index in indices)

    def _in_host_memory(self) -> list[int]:
        devices = ((index, self._device_of(index)) for index in range(len(self._slots)))
        return [index for index, device in devices if device is None or device.shares_host_memory]

    def snapshot(self) -> ModelSnapshot:
        groups: dict[tuple[str, str, str], list[int]] = defaultdict(lambda: [0, 0])
        buffers: dict[str, int] = defaultdict(int)
        for index, slot in enumerate(self._slots):
            tensor, device = slot.tensor, self._place_name(index)
            if slot.is_buffer:
                buffers[device] += tensor.nbytes
            else:
                group = groups[component_of(slot.name), str(tensor.dtype).removeprefix("torch."), device]
                group[0] += tensor.numel()
                group[1] += tensor.nbytes
        return ModelSnapshot(
            model=self.identity.model,
            residency=_RESIDENCIES.get(self.device_name, Residency.DEVICE),
            architecture=self.identity.architecture,
            dtype=self.identity.dtype,
            quantization=self.identity.quantization,
            revision=self.identity.revision,
            groups=tuple(
                ParameterGroup(component=component, dtype=dtype, device=device, parameters=count, nbytes=nbytes)
                for (component, dtype, device), (count, nbytes) in sorted(groups.items())
            ),
            buffer_bytes=dict(buffers),
            file_bytes=self.identity.file_bytes,
            file_elements=self.identity.file_elements,
            context_window_tokens=self.identity.context_window_tokens,
            tensors=len(self._slots),
        )


_RESIDENCIES = {HOST: Residency.HOST, MIXED: Residency.MIXED}


def _release_all(held: list[_Held]) -> None:
    """Give back blocks in the order in which they were taken, as Module.to("cpu") does."""
    held.reverse()
    while held:
        last = held.pop()
        last.device.release(last.tensor)
        del last

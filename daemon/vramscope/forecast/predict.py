"""Walks the steps of a plan over the model of the allocator, and says what each device holds after each step."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from vramscope.anatomy.parts import Part, chosen
from vramscope.errors import OutOfMemoryError, PartError, VramscopeError
from vramscope.forecast.order import ModelOrder
from vramscope.memory.allocator import AllocatorSettings, CachingAllocator, PhysicalMemory
from vramscope.memory.snapshot import HOST, MIXED
from vramscope.plan.kinds import Action, Effect


@dataclass(frozen=True, kw_only=True)
class DeviceBudget:
    """A device as the forecast sees it, in bytes. `context_bytes` is taken when the first tensor comes."""

    total_bytes: int
    context_bytes: int
    other_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class DeviceLevels:
    """What a device holds, in bytes; `used_bytes` is what nvidia-smi shows for the device."""

    parameter_bytes: int
    buffer_bytes: int
    allocated_bytes: int
    reserved_bytes: int
    used_bytes: int


@dataclass(frozen=True, kw_only=True)
class Levels:
    """What the host and every device hold after a step, in bytes."""

    host_bytes: int
    devices: dict[str, DeviceLevels]


class MisfitError(OutOfMemoryError):
    """A step for which a device has no room."""

    def __init__(self, message: str, device: str) -> None:
        super().__init__(message)
        self.device = device


class UnknownModelError(VramscopeError):
    """A step uses a model of which nothing is known, so nothing can be said from here on."""


@dataclass
class _Card:
    """One device: the driver's memory and torch's allocator over it."""

    budget: DeviceBudget
    memory: PhysicalMemory
    allocator: CachingAllocator

    @classmethod
    def empty(cls, budget: DeviceBudget, settings: AllocatorSettings) -> "_Card":
        memory = PhysicalMemory(budget.total_bytes, other_bytes=budget.other_bytes)
        return cls(budget, memory, CachingAllocator(memory, settings))

    def open(self, name: str) -> None:
        """Take the context's bytes, once."""
        context = self.budget.context_bytes
        if self.memory.context_bytes or not context:
            return
        if context > self.memory.free_bytes:
            raise OutOfMemoryError(f"{name} has {self.memory.free_bytes} bytes free and a context needs {context}")
        self.memory.context_bytes = context


@dataclass
class _Placed:
    """A loaded model: where each of its tensors is, and its blocks by tensor index."""

    order: ModelOrder
    devices: list[str]
    pointers: dict[int, int | None] = field(default_factory=dict)

    @property
    def device(self) -> str:
        """The device of all tensors, or MIXED."""
        devices = set(self.devices)
        return devices.pop() if len(devices) == 1 else MIXED if devices else HOST

    def nbytes_on(self, device: str, *, buffers: bool) -> int:
        held = zip(self.order.tensors, self.devices, strict=True)
        return sum(tensor.nbytes for tensor, where in held if where == device and tensor.is_buffer is buffers)

    def chosen(self, part: Part | None) -> tuple[int, ...]:
        """The tensors of a part, in the order of a move. Raises PartError, UnknownModelError."""
        try:
            return chosen(part, [tensor.name for tensor in self.order.tensors])
        except PartError as error:
            if self.order.exact:
                raise
            raise UnknownModelError(f"{error.message}, as far as its files tell") from None


class Predictor:
    """The state of all devices, moved on by one step after the other."""

    def __init__(
        self,
        orders: Mapping[str, ModelOrder],
        budgets: Mapping[str, DeviceBudget],
        settings: AllocatorSettings = AllocatorSettings(),  # noqa: B008 - a frozen value
    ) -> None:
        self._orders = orders
        self._placed: dict[str, _Placed] = {}
        self._settings = settings
        self._cards = {name: _Card.empty(budget, settings) for name, budget in budgets.items()}

    def learn(self, orders: Mapping[str, ModelOrder]) -> None:
        """Take what is known of the models from now on; what is loaded stays as it was loaded."""
        self._orders = orders

    def apply(self, effect: Effect) -> None:
        """Do what a step does. Raises MisfitError and PartError, with everything as a rolled-back step leaves it."""
        match effect.action:
            case Action.LOAD:
                self._load(effect.model, effect.to, effect.part)
            case Action.MOVE:
                self._move(self._placed[effect.model], effect.to, effect.part)
            case Action.UNLOAD:
                self._leave(self._placed.pop(effect.model))
            case Action.RELEASE:
                for card in self._cards.values():
                    card.allocator.empty_cache()
            case Action.RESTART:
                self._placed.clear()
                self._cards = {name: _Card.empty(card.budget, self._settings) for name, card in self._cards.items()}
            case Action.NOTHING:
                pass

    def set_outside(self, device: str, nbytes: int) -> None:
        """Say what a device holds outside torch's allocator now: contexts, other processes, the driver's own."""
        if (card := self._cards.get(device)) is not None:
            card.memory.other_bytes = nbytes

    def unload_all(self) -> None:
        """What the clean-up after a failed step does."""
        while self._placed:
            self._leave(self._placed.popitem()[1])

    def placed(self) -> list[tuple[str, str]]:
        """Every loaded model and where it is: on one device, or MIXED."""
        return [(name, placed.device) for name, placed in self._placed.items()]

    def levels(self) -> Levels:
        return Levels(
            host_bytes=sum(
                placed.nbytes_on(HOST, buffers=buffers) for placed in self._placed.values() for buffers in (False, True)
            ),
            devices={name: self._device_levels(name, card) for name, card in self._cards.items()},
        )

    def signature(self) -> tuple[object, ...]:
        """All that later steps depend on: two equal signatures have the same future."""
        cards = tuple((card.memory.context_bytes, card.allocator.signature()) for card in self._cards.values())
        models = (
            (name, tuple(placed.devices), *sorted(placed.pointers.items())) for name, placed in self._placed.items()
        )
        return (tuple(sorted(models)), cards)

    def _load(self, model: str, device: str, part: Part | None) -> None:
        if model not in self._orders:
            raise UnknownModelError(f"nothing is known about model {model!r}")
        order = self._orders[model]
        placed = _Placed(order, [HOST] * len(order.tensors))
        if device != HOST:
            there = set(placed.chosen(part))
            self._enter(placed, device, [index for index in order.direct if index in there])
        self._placed[model] = placed

    def _move(self, placed: _Placed, device: str, part: Part | None) -> None:
        moving = [index for index in placed.chosen(part) if placed.devices[index] != device]
        left = [(placed.devices[index], placed.pointers.get(index)) for index in moving]
        if device == HOST:
            for index in moving:
                placed.devices[index] = HOST
                del placed.pointers[index]
        elif moving:
            self._enter(placed, device, moving)
        self._free(left)

    def _enter(self, placed: _Placed, device: str, indices: Iterable[int]) -> None:
        """Put the tensors on a device in this order; at the first that does not fit, all are taken back."""
        if device not in self._cards:
            raise MisfitError(f"there is no device {device}", device)
        card = self._cards[device]
        pointers: dict[int, int | None] = {}
        try:
            card.open(device)
            for index in indices:
                pointers[index] = card.allocator.allocate(placed.order.tensors[index].nbytes)
        except OutOfMemoryError as error:
            self._free((device, pointer) for pointer in pointers.values())
            raise MisfitError(str(error), device) from None
        for index, pointer in pointers.items():
            placed.devices[index], placed.pointers[index] = device, pointer

    def _leave(self, placed: _Placed) -> None:
        self._free((placed.devices[index], pointer) for index, pointer in placed.pointers.items())

    def _free(self, blocks: Iterable[tuple[str, int | None]]) -> None:
        """Give blocks back to their devices; tensors in host memory have none."""
        for device, pointer in blocks:
            if device != HOST:
                self._cards[device].allocator.free(pointer)

    def _device_levels(self, name: str, card: _Card) -> DeviceLevels:
        models = self._placed.values()
        return DeviceLevels(
            parameter_bytes=sum(placed.nbytes_on(name, buffers=False) for placed in models),
            buffer_bytes=sum(placed.nbytes_on(name, buffers=True) for placed in models),
            allocated_bytes=card.allocator.allocated_bytes,
            reserved_bytes=card.allocator.reserved_bytes,
            used_bytes=card.memory.used_bytes,
        )

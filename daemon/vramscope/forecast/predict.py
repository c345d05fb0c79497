"""Walks the steps of a plan over the model of the allocator, and says what each device holds after each step."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from vramscope.errors import OutOfMemoryError, VramscopeError
from vramscope.forecast.order import ModelOrder
from vramscope.memory.allocator import AllocatorSettings, CachingAllocator, PhysicalMemory
from vramscope.plan.kinds import Action, Effect

HOST = "cpu"


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
    """A loaded model: where it is, and its blocks by tensor index."""

    order: ModelOrder
    device: str
    pointers: dict[int, int | None] = field(default_factory=dict)


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
        """Do what a step does. Raises MisfitError, with everything as a rolled-back step leaves it."""
        match effect.action:
            case Action.LOAD:
                self._load(effect.model, effect.to)
            case Action.MOVE:
                self._move(self._placed[effect.model], effect.to)
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
        """Every loaded model and where it is."""
        return [(name, placed.device) for name, placed in self._placed.items()]

    def levels(self) -> Levels:
        return Levels(
            host_bytes=sum(placed.order.nbytes for placed in self._placed.values() if placed.device == HOST),
            devices={name: self._device_levels(name, card) for name, card in self._cards.items()},
        )

    def signature(self) -> tuple[object, ...]:
        """All that later steps depend on: two equal signatures have the same future."""
        cards = tuple((card.memory.context_bytes, card.allocator.signature()) for card in self._cards.values())
        models = ((name, placed.device, *sorted(placed.pointers.items())) for name, placed in self._placed.items())
        return (tuple(sorted(models)), cards)

    def _load(self, model: str, device: str) -> None:
        if model not in self._orders:
            raise UnknownModelError(f"nothing is known about model {model!r}")
        placed = _Placed(self._orders[model], HOST)
        if device != HOST:
            self._enter(placed, device, placed.order.direct)
        self._placed[model] = placed

    def _move(self, placed: _Placed, device: str) -> None:
        if device == placed.device:
            return
        left = _Placed(placed.order, placed.device, placed.pointers)
        if device == HOST:
            placed.device, placed.pointers = HOST, {}
        else:
            self._enter(placed, device, range(len(placed.order.tensors)))
        self._leave(left)

    def _enter(self, placed: _Placed, device: str, indices: Sequence[int]) -> None:
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
            self._free(device, pointers)
            raise MisfitError(str(error), device) from None
        placed.device, placed.pointers = device, pointers

    def _leave(self, placed: _Placed) -> None:
        if placed.device != HOST:
            self._free(placed.device, placed.pointers)

    def _free(self, device: str, pointers: Mapping[int, int | None]) -> None:
        for pointer in pointers.values():
            self._cards[device].allocator.free(pointer)

    def _device_levels(self, name: str, card: _Card) -> DeviceLevels:
        here = [placed.order for placed in self._placed.values() if placed.device == name]
        return DeviceLevels(
            parameter_bytes=sum(order.parameter_bytes for order in here),
            buffer_bytes=sum(order.buffer_bytes for order in here),
            allocated_bytes=card.allocator.allocated_bytes,
            reserved_bytes=card.allocator.reserved_bytes,
            used_bytes=card.memory.used_bytes,
        )

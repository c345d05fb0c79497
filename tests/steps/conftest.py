"""A world for steps to work in: models that are numbers of bytes, and a clock that a wait moves."""

from dataclasses import dataclass, field

import pytest

from vramscope.errors import OutOfMemoryError, StepCancelledError, StepError
from vramscope.memory.snapshot import (
    AllocatorMemory,
    DeviceSnapshot,
    DriverMemory,
    MemorySampled,
    ModelSnapshot,
    ParameterGroup,
    Residency,
)

CACHE_BYTES = 500


@dataclass
class FakeContext:
    """A step context whose models all take `model_bytes`, on devices with room for `capacity_bytes`.

    `cancel_in` is the number of operations after which the step is cancelled; None is never.
    """

    default_device: str = "cuda:0"
    devices: tuple[str, ...] = ("cuda:0", "cuda:1")
    model_bytes: int = 1000
    capacity_bytes: int = 10_000
    has_driver: bool = True
    cancel_in: int | None = None
    now: float = 0.0
    places: dict[str, str] = field(default_factory=dict)
    cached: set[str] = field(default_factory=set)
    forced: bool = False
    verified: bool = False
    fetched: list[str] = field(default_factory=list)
    parts: list[object] = field(default_factory=list)  # what each load and move was about

    def check_cancelled(self):
        if self.cancel_in is not None:
            if self.cancel_in == 0:
                raise StepCancelledError("the step was cancelled")
            self.cancel_in -= 1

    def sleep(self, seconds):
        self.check_cancelled()
        self.now += seconds

    def fetch(self, model):
        self.check_cancelled()
        self.fetched.append(model)
        return {"bytes": self.model_bytes}

    def load(self, model, device, part=None, *, force=False, verify=False):
        self.check_cancelled()
        self.parts.append(part)
        self.forced |= force
        self.verified |= verify
        if model in self.places:
            raise StepError(f"{model} is loaded already")
        self._make_room(device)
        self.places[model] = device
        return {"bytes": self.model_bytes}

    def prepare_restart(self):
        self.check_cancelled()
        if self.places:
            raise StepError(f"{next(iter(self.places))} is still loaded")
        return {}

    def move(self, model, device, part=None):
        self.check_cancelled()
        self.parts.append(part)
        self._make_room(device)
        self.cached.add(self.places[model])
        self.places[model] = device
        return {"bytes": self.model_bytes}

    def unload(self, model):
        self.check_cancelled()
        self.cached.add(self.places.pop(model))
        return {}

    def tokenize(self, _model, text):
        self.check_cancelled()
        return {"tokens": len(text.encode())}

    def release_cache(self):
        self.check_cancelled()
        self.cached.clear()
        return {}

    def memory(self):
        self.check_cancelled()
        return MemorySampled(
            at=self.now,
            devices=tuple(self._device(device) for device in self.devices),
            models=tuple(self._model(model, device) for model, device in self.places.items()),
        )

    def _make_room(self, device):
        if self._used(device) + self.model_bytes > self.capacity_bytes:
            raise OutOfMemoryError(f"{device} has no room for {self.model_bytes} bytes")

    def _used(self, device):
        return self.model_bytes * list(self.places.values()).count(device)

    def _device(self, device):
        allocated = self._used(device)
        reserved = allocated + (CACHE_BYTES if device in self.cached else 0)
        driver = DriverMemory(used_bytes=reserved + 300, process_used_bytes=reserved + 100) if self.has_driver else None
        allocator = AllocatorMemory(
            allocated_bytes=allocated, reserved_bytes=reserved, requested_bytes=max(0, allocated - 10)
        )
        return DeviceSnapshot(device=device, backend="simulated", allocator=allocator, driver=driver)

    def _model(self, model, device):
        group = ParameterGroup(
            component="mlp", dtype="float16", device=device, parameters=450, nbytes=self.model_bytes - 100
        )
        return ModelSnapshot(
            model=model,
            residency=Residency.HOST if device == "cpu" else Residency.DEVICE,
            architecture="Fake",
            dtype="float16",
            quantization="",
            revision="main",
            groups=(group,),
            buffer_bytes={device: 100},
        )


@pytest.fixture
def make_context():
    """Makes a context with a given state."""
    return FakeContext


@pytest.fixture
def context():
    """A context in which nothing is loaded."""
    return FakeContext()

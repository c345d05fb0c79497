"""A CUDA device and the forecast of it, side by side: what is done to one is done to the other, and both are looked at.

Runs in a process on the stub driver. Sizes are bytes; what comes back can travel as JSON.
"""

import gc
import os
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from tests.loading.monitor import RecordingMonitor

from vramscope.anatomy.parts import Part
from vramscope.anatomy.source import Checkpoint
from vramscope.devices.cuda import CudaDevice
from vramscope.devices.driver import Driver
from vramscope.errors import OutOfMemoryError
from vramscope.forecast.order import ModelOrder
from vramscope.forecast.predict import DeviceBudget, DeviceLevels, MisfitError, Predictor
from vramscope.loading.assemble import find_architecture, quiet_transformers
from vramscope.loading.loader import load
from vramscope.loading.resident import ModelIdentity, ResidentModel
from vramscope.loading.skeleton import Skeleton
from vramscope.memory.snapshot import DriverMemory
from vramscope.plan.kinds import Action, Effect

DEVICE = "cuda:0"
MONITOR = RecordingMonitor()
# What brings a model into host memory, or straight to the device that it is given.
Loader = Callable[[CudaDevice | None, Part | None], ResidentModel]

quiet_transformers()
gc.freeze()  # what is imported stays: the collection after each unload need not look at it


class SideBySide:
    """The first CUDA device, and a predictor that starts from what the driver says of it."""

    def __init__(self) -> None:
        self.device = CudaDevice(0)
        self.device.open()
        self._driver = Driver(os.environ)
        self._facts = self.device.facts()
        self._orders: dict[str, ModelOrder] = {}
        self._loaders: dict[str, Loader] = {}
        self._models: dict[str, ResidentModel] = {}
        budget = DeviceBudget(total_bytes=self._facts.total_bytes or 0, context_bytes=0)
        self._predictor = Predictor(self._orders, {DEVICE: budget})

    def know(self, name: str, order: ModelOrder, loader: Loader) -> None:
        """Say how a model is loaded, and what the forecast knows of it."""
        self._orders[name], self._loaders[name] = order, loader

    def do(self, action: str, model: str = "", to: str = "cpu", part: Part | None = None) -> dict[str, Any]:
        """Do one step to both; returns whether it fitted, and all levels after it, as foreseen and as measured."""
        effect = Effect(action=Action(action), model=model, to=to, part=part)
        held = self.device.snapshot().allocator.reserved_bytes
        self._predictor.set_outside(DEVICE, (self.driver().used_bytes or 0) - held)
        foreseen, happened = self._foresee(effect), self._act(effect)
        return {
            "fits": [foreseen, happened],
            "forecast": asdict(self._predictor.levels().devices[DEVICE]),
            "measured": asdict(self._measure()),
        }

    def load(self, name: str, target: CudaDevice | None, part: Part | None = None) -> ResidentModel:
        """Load a model for the caller, who gives it back; the forecast hears nothing of it."""
        model = self._loaders[name](target, part)
        try:
            model.move(target, MONITOR, part)  # does nothing where the loader went there
        except OutOfMemoryError:
            model.unload()
            raise
        return model

    def driver(self) -> DriverMemory:
        """What NVML says about the device and this process."""
        return self._driver.sample(self._facts, os.getpid())

    def _foresee(self, effect: Effect) -> bool:
        try:
            self._predictor.apply(effect)
        except MisfitError:
            return False
        return True

    def _act(self, effect: Effect) -> bool:
        target = self.device if effect.to == DEVICE else None
        try:
            match effect.action:
                case Action.LOAD:
                    self._models[effect.model] = self.load(effect.model, target, effect.part)
                case Action.MOVE:
                    self._models[effect.model].move(target, MONITOR, effect.part)
                case Action.UNLOAD:
                    self._models.pop(effect.model).unload()
                case Action.RELEASE:
                    self.device.empty_cache()
        except OutOfMemoryError:
            return False
        return True

    def _measure(self) -> DeviceLevels:
        tensors = [model.snapshot().bytes_on(DEVICE) for model in self._models.values()]
        allocator = self.device.snapshot().allocator
        return DeviceLevels(
            parameter_bytes=sum(parameters for parameters, _ in tensors),
            buffer_bytes=sum(buffers for _, buffers in tensors),
            allocated_bytes=allocator.allocated_bytes,
            reserved_bytes=allocator.reserved_bytes,
            used_bytes=self.driver().used_bytes or 0,
        )


def identity(name: str, dtype: str) -> ModelIdentity:
    return ModelIdentity(
        model=name,
        architecture="",
        dtype=dtype,
        quantization="",
        revision="",
        file_bytes=0,
        file_elements=0,
        context_window_tokens=None,
    )


def order_of(checkpoint: Checkpoint, dtype: torch.dtype) -> ModelOrder:
    """The order as the worker tells it, from the config and the headers."""
    architecture = find_architecture(checkpoint.directory, checkpoint.config)
    return Skeleton(architecture, dtype).order(checkpoint.headers)


def loader_of(name: str, checkpoint: Checkpoint, dtype: str) -> Loader:
    """A load as a step does it."""

    def bring(target: CudaDevice | None, part: Part | None) -> ResidentModel:
        loaded = load(checkpoint, getattr(torch, dtype), MONITOR, target, part)
        MONITOR.phases.clear()
        return ResidentModel(identity(name, dtype), loaded.module, target, loaded.held, loaded.arena)

    return bring

"""The worker's bench: the devices, the models that lie on them, and the operations that steps are made of."""

import time
from collections.abc import Mapping
from typing import Any

import torch

from vramscope.anatomy.config import ModelConfig, resolve_dtype
from vramscope.anatomy.source import SYNTHETIC, Checkpoint, resolve
from vramscope.anatomy.synthetic import directory_of, materialize
from vramscope.devices.protocol import Device
from vramscope.errors import StepError
from vramscope.loading.assemble import assemble, find_architecture, float32_patterns
from vramscope.loading.resident import HOST, ModelIdentity, ResidentModel
from vramscope.loading.tokens import count_tokens, load_tokenizer
from vramscope.loading.weights import TORCH_DTYPES, read_weights
from vramscope.memory.resident import read_resident
from vramscope.memory.snapshot import MemorySampled
from vramscope.plan.schema import ModelSpec
from vramscope.settings import WorkerSettings
from vramscope.steps._frame import Facts
from vramscope.worker.reporter import Reporter

# How often a long wait looks again at what the devices hold.
SAMPLE_INTERVAL_SECONDS = 1.0


class Bench:
    """What lives as long as the worker process. One step at a time works on it, through a StepBench."""

    def __init__(self, settings: WorkerSettings, devices: Mapping[str, Device]) -> None:
        self.settings = settings
        self.devices = devices
        self.models: dict[str, ResidentModel] = {}
        self.specs: dict[str, ModelSpec] = {}
        self.default_device = next(iter(devices))
        self.tokenizers: dict[str, Any] = {}

    def memory(self) -> MemorySampled:
        return MemorySampled(
            at=time.time(),
            devices=tuple(device.snapshot() for device in self.devices.values()),
            models=tuple(model.snapshot() for model in self.models.values()),
            resident=read_resident(),
        )

    def unload_all(self) -> None:
        while self.models:
            _, model = self.models.popitem()
            model.unload()

    def device(self, name: str) -> Device | None:
        """The device by name; None is host memory. Raises StepError for a device that is not here."""
        if name == HOST:
            return None
        if name not in self.devices:
            raise StepError(f"there is no device {name!r} here", hint=f"there is {', '.join(self.devices)} and cpu")
        return self.devices[name]


class StepBench:
    """The StepContext of one run of one step."""

    def __init__(self, bench: Bench, reporter: Reporter) -> None:
        self._bench = bench
        self._reporter = reporter

    @property
    def default_device(self) -> str:
        return self._bench.default_device

    def check_cancelled(self) -> None:
        self._reporter.check_cancelled()

    def memory(self) -> MemorySampled:
        return self._bench.memory()

    def sleep(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._reporter.sleep(min(left, SAMPLE_INTERVAL_SECONDS))
            self._reporter.sample(self._bench.memory())

    def load(self, model: str, device: str) -> Facts:
        target = self._bench.device(device)
        if model in self._bench.models:
            raise StepError(f"model {model!r} is loaded already")
        checkpoint = self._resolve(model)
        loaded, unexpected = self._build(model, checkpoint)
        self._bench.models[model] = loaded
        if target is not None:
            try:
                loaded.move(target, self._reporter)
            except BaseException:
                self._bench.models.pop(model).unload()
                raise
        facts: dict[str, str | int | float | None] = {
            "bytes": loaded.nbytes,
            "file_bytes": checkpoint.file_bytes,
            "unexpected_tensors": len(unexpected),
        }
        return facts

    def move(self, model: str, device: str) -> Facts:
        target = self._bench.device(device)
        began = time.perf_counter()
        moved = self._loaded(model).move(target, self._reporter)
        seconds = time.perf_counter() - began
        return {"bytes": moved, "device": device, "bytes_per_second": moved / seconds if seconds else None}

    def unload(self, model: str) -> Facts:
        loaded = self._loaded(model)
        nbytes = loaded.nbytes
        del self._bench.models[model]
        loaded.unload()
        return {"bytes": nbytes}

    def release_cache(self) -> Facts:
        before = sum(device.snapshot().allocator.reserved_bytes for device in self._bench.devices.values())
        for device in self._bench.devices.values():
            device.empty_cache()
        after = sum(device.snapshot().allocator.reserved_bytes for device in self._bench.devices.values())
        return {"bytes": before - after}

    def tokenize(self, model: str, text: str) -> Facts:
        directory = self._resolve(model).directory
        with self._reporter.phase("tokenizer"):
            tokenizer = load_tokenizer(directory)
        with self._reporter.phase("tokenize"):
            count = count_tokens(tokenizer, text)
        return {
            "tokens": count.tokens,
            "special_tokens": count.special_tokens,
            "characters": count.characters,
            "words": count.words,
        }

    def _loaded(self, model: str) -> ResidentModel:
        if model not in self._bench.models:
            raise StepError(f"model {model!r} is not loaded")
        return self._bench.models[model]

    def _resolve(self, model: str) -> Checkpoint:
        """The model's files, with every header checked."""
        if model not in self._bench.specs:
            raise StepError(f"the plan has no model {model!r}")
        spec = self._bench.specs[model]
        settings = self._bench.settings
        if spec.source.startswith(SYNTHETIC):
            self._generate(spec.source.removeprefix(SYNTHETIC))
        with self._reporter.phase("resolve"):
            return resolve(spec.source, settings.cache, hub_cache=settings.hub_cache, revision=spec.revision)

    def _generate(self, name: str) -> None:
        """Make a synthetic checkpoint, if it is not there yet, as a phase of its own: it is no part of loading."""
        cache = self._bench.settings.cache
        if directory_of(name, cache).is_dir():
            return
        with self._reporter.phase("generate"):
            materialize(name, cache, progress=self._reporter.progress, check=self._reporter.check_cancelled)

    def _build(self, model: str, checkpoint: Checkpoint) -> tuple[ResidentModel, tuple[str, ...]]:
        spec = self._bench.specs[model]
        config = ModelConfig.of(checkpoint.config)
        dtype_name = resolve_dtype(spec.dtype, checkpoint.config, checkpoint.headers)
        dtype: torch.dtype = getattr(torch, dtype_name)
        with self._reporter.phase("import"):
            architecture = find_architecture(checkpoint)
            kept = float32_patterns(architecture)
        self._reporter.enter_phase("read")
        weights = read_weights(
            list(checkpoint.tensors),
            lambda entry: _wanted(entry.dtype, entry.name, dtype, kept),
            self._reporter,
        )
        with self._reporter.phase("build"):
            module, unexpected = assemble(architecture, weights, dtype)
        identity = ModelIdentity(
            model=model,
            architecture=architecture.name,
            dtype=dtype_name,
            quantization=config.quantization,
            revision=checkpoint.revision,
            file_bytes=checkpoint.file_bytes,
            file_elements=checkpoint.elements,
            context_window_tokens=config.context_window_tokens,
        )
        return ResidentModel(identity, module), unexpected


def _wanted(stored: str, name: str, dtype: torch.dtype, kept: frozenset[str]) -> torch.dtype:
    """The dtype in which a tensor is read: `dtype`, unless it holds no floats or transformers converts it itself."""
    as_stored = TORCH_DTYPES.get(stored, dtype)
    if not as_stored.is_floating_point or any(part in name for part in kept):
        return as_stored
    return dtype

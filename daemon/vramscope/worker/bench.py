"""The worker's bench: the devices, the models that lie on them, and the operations that steps are made of."""

import gc
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from vramscope.anatomy.config import ModelConfig, resolve_dtype
from vramscope.anatomy.parts import Part
from vramscope.anatomy.source import Checkpoint
from vramscope.anatomy.tokenizer import embedding_rows
from vramscope.devices.protocol import Device
from vramscope.errors import OutOfMemoryError, SourceError, StepError
from vramscope.forecast.order import SOURCE_CHANGED, ModelOrder, OrderCache, order_key, order_of_files
from vramscope.forecast.source import SourceFacts, read_source
from vramscope.loading.assemble import find_architecture
from vramscope.loading.checksum import verify_files
from vramscope.loading.loader import load
from vramscope.loading.page_cache import page_cache_share
from vramscope.loading.resident import ModelIdentity, ResidentModel
from vramscope.loading.skeleton import Skeleton
from vramscope.loading.tokens import context_window, count_tokens, load_tokenizer, vocabulary_of
from vramscope.memory.resident import read_resident
from vramscope.memory.residue import AFTER_UNLOAD
from vramscope.memory.snapshot import HOST, DeviceSnapshot, MemorySampled
from vramscope.plan.schema import ModelSpec
from vramscope.settings import WorkerSettings
from vramscope.steps._frame import Facts
from vramscope.units import format_bytes
from vramscope.worker.admission import host_room, refuse, shortage, shortage_of
from vramscope.worker.facts import part_facts, residue_facts
from vramscope.worker.giveback import GiveBack
from vramscope.worker.provision import Provided, fetch_facts, provide
from vramscope.worker.reporter import Reporter

# How often a long wait looks again at what the devices hold.
SAMPLE_INTERVAL_SECONDS = 1.0
RETURN_HINT = "unload another model first, or raise the container's memory limit"


class Bench:
    """What lives as long as the worker process. One step at a time works on it, through a StepBench."""

    def __init__(self, settings: WorkerSettings, devices: Mapping[str, Device]) -> None:
        self.settings = settings
        self.devices = devices
        self.models: dict[str, ResidentModel] = {}
        self.specs: dict[str, ModelSpec] = {}
        self.described: dict[str, str] = {}  # the key of what each model's order was told for
        self.default_device = next(iter(devices))
        self.give_back = GiveBack(devices, self.models)

    def memory(self) -> MemorySampled:
        return MemorySampled(
            at=time.time(),
            devices=tuple(device.snapshot() for device in self.devices.values()),
            models=tuple(model.snapshot() for model in self.models.values()),
            resident=read_resident(),
        )

    def unload_all(self) -> None:
        while self.models:
            self.models.popitem()[1].unload()
        gc.collect()  # what a failed step left behind

    def release_caches(self) -> int:
        """Give the allocators' caches back; returns how many bytes went."""
        before = sum(device.snapshot().allocator.reserved_bytes for device in self.devices.values())
        for device in self.devices.values():
            device.empty_cache()
        return before - sum(device.snapshot().allocator.reserved_bytes for device in self.devices.values())

    def describe(self, model: str, *, from_config: bool) -> ModelOrder:
        """The order of a model's tensors, from the cache or from its architecture. Raises SourceError."""
        spec, settings = self.specs[model], self.settings
        source = read_source(spec, settings.cache, settings.hub_cache, from_config=from_config)
        orders = OrderCache(settings.cache)
        self.described[model] = source.key
        if (order := orders.find(source.key)) is None:
            order = self._build_order(source)
            if order.exact:
                orders.keep(source.key, order)
        return order

    @staticmethod
    def _build_order(source: SourceFacts) -> ModelOrder:
        dtype: torch.dtype = getattr(torch, source.dtype)
        try:
            return Skeleton(find_architecture(source.directory, source.config), dtype).order(source.headers)
        except SourceError as error:
            if not source.headers:
                raise
            return order_of_files(source.headers, source.dtype, dtype.itemsize, str(error))

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
            self._reporter.tell(self._bench.memory())

    def fetch(self, model: str) -> Facts:
        return fetch_facts(self._provide(model, fetch=True))

    def load(
        self, model: str, device: str, part: Part | None = None, *, force: bool = False, verify: bool = False
    ) -> Facts:
        target = self._bench.device(device)
        if model in self._bench.models:
            raise StepError(f"model {model!r} is loaded already")
        provided = self._provide(model)
        checkpoint, cached = provided.checkpoint, page_cache_share(provided.checkpoint.files)
        dtype = resolve_dtype(self._bench.specs[model].dtype, checkpoint.config, checkpoint.headers)
        short = shortage(checkpoint, getattr(torch, dtype), target, host_room(self._bench.settings), part)
        if short:
            refuse(f"model {model!r} does not fit into the host's memory: {short}", force=force)
        sums = verify_files(checkpoint.files, self._reporter) if verify else {}
        self._bench.give_back.before_load(model)
        with self._explaining(model, target):
            loaded = load(checkpoint, getattr(torch, dtype), self._reporter, target, part)
        identity = _identity(model, loaded.architecture.name, dtype, checkpoint)
        resident = ResidentModel(identity, loaded.module, target, loaded.held, loaded.arena)
        try:
            with self._explaining(model, target):
                moved = resident.move(target, self._reporter, part)  # does nothing where it is there already
        except BaseException:
            resident.unload()
            raise
        self._bench.models[model] = resident
        self._bench.give_back.note_step(model)
        return {
            "bytes": resident.nbytes,
            "file_bytes": checkpoint.file_bytes,
            "unexpected_tensors": len(loaded.unexpected),
            **loaded.facts,
            **({"staging": moved.staging} if moved.nbytes else {}),
            "resident_peak_bytes": self._reporter.peak.nbytes,
            "page_cache_share": cached,
            **provided.facts,
            **sums,
            **part_facts(resident, part),
            **({"forced": short} if short else {}),
            **({SOURCE_CHANGED: 1} if self._is_changed(model, checkpoint, dtype) else {}),
        }

    def _is_changed(self, model: str, checkpoint: Checkpoint, dtype: str) -> bool:
        """Whether the files are of another kind than those that the forecast knows."""
        key = order_key(checkpoint.config, checkpoint.headers, dtype)
        return self._bench.described.get(model, key) != key

    def move(self, model: str, device: str, part: Part | None = None) -> Facts:
        target, resident = self._bench.device(device), self._loaded(model)
        if target is None:
            self._check_return(resident, part)
        with self._explaining(model, target):
            moved = resident.move(target, self._reporter, part)
        self._bench.give_back.note_step(model)
        held = read_resident()
        return {
            "bytes": moved.nbytes,
            "from": moved.source,
            "to": device,
            "copy_seconds": moved.seconds,
            "bytes_per_second": moved.nbytes / moved.seconds if moved.seconds else None,
            "staging": moved.staging,
            "resident_bytes": held.total_bytes if held else None,
            **part_facts(resident, part),
        }

    def _check_return(self, resident: ResidentModel, part: Part | None) -> None:
        """Raise StepError where the host has no room for what comes back from a device."""
        if not (returning := resident.returning_nbytes(part)):
            return
        if short := shortage_of(returning, host_room(self._bench.settings)):
            name = resident.identity.model
            raise StepError(f"model {name!r} does not fit into the host's memory: {short}", hint=RETURN_HINT)

    def unload(self, model: str) -> Facts:
        loaded = self._loaded(model)
        nbytes = loaded.nbytes
        del self._bench.models[model]
        loaded.unload()
        measured = self._bench.give_back.measure([model], AFTER_UNLOAD)
        self._reporter.tell(measured)
        return {"bytes": nbytes, **residue_facts(measured)}

    def release_cache(self) -> Facts:
        released = self._bench.release_caches()
        self._reporter.tell(self._bench.give_back.measure_again())
        return {"bytes": released}

    def prepare_restart(self) -> Facts:
        """Make sure that nothing is lost when the supervisor ends this process, which it does after the step."""
        if loaded := sorted(self._bench.models):
            raise StepError(f"model {loaded[0]!r} is still loaded", hint="unload every model before a restart")
        return {}

    def tokenize(self, model: str, text: str) -> Facts:
        checkpoint, check = self._provide(model).checkpoint, self._reporter.check_cancelled
        with self._reporter.phase("tokenizer"):
            tokenizer = load_tokenizer(checkpoint.directory, check)
        with self._reporter.phase("tokenize"):
            count = count_tokens(tokenizer, text, check)
        window, vocabulary = context_window(checkpoint.config, tokenizer), vocabulary_of(tokenizer)
        return {
            "tokens": count.tokens,
            "tokens_with_special": count.tokens_with_special,
            "special_tokens": count.special_tokens,
            "characters": count.characters,
            "words": count.words,
            "context_window_tokens": window,
            "context_window_share": count.tokens_with_special / window if window else None,
            "vocabulary": vocabulary.base,
            "added_tokens": vocabulary.added,
            "embedding_rows": embedding_rows(checkpoint.config, checkpoint.headers),
        }

    @contextmanager
    def _explaining(self, model: str, target: Device | None) -> Iterator[None]:
        """Say of an out-of-memory who wanted what, and what the device has: the allocator only knows one request."""
        try:
            yield
        except OutOfMemoryError as error:
            # Python 3.12 keeps the error in a cycle, and its frames would hold tensors until a collection.
            error.__traceback__ = None
            held = target.snapshot() if target else None
            raise OutOfMemoryError(f"model {model!r} does not fit: {error.message}{_room(held)}") from None

    def _loaded(self, model: str) -> ResidentModel:
        if model not in self._bench.models:
            raise StepError(f"model {model!r} is not loaded")
        return self._bench.models[model]

    def _provide(self, model: str, *, fetch: bool = False) -> Provided:
        """The model's files, with every header checked."""
        if model not in self._bench.specs:
            raise StepError(f"the plan has no model {model!r}")
        return provide(self._bench.specs[model], self._bench.settings, self._reporter, fetch=fetch)


def _identity(model: str, architecture: str, dtype: str, checkpoint: Checkpoint) -> ModelIdentity:
    """What a model is, by its files and the class that they became."""
    config = ModelConfig.of(checkpoint.config)
    return ModelIdentity(
        model=model,
        architecture=architecture,
        dtype=dtype,
        quantization=config.quantization,
        revision=checkpoint.revision,
        file_bytes=checkpoint.file_bytes,
        file_elements=checkpoint.elements,
        context_window_tokens=config.context_window_tokens,
    )


def _room(held: DeviceSnapshot | None) -> str:
    """What a device has after a roll-back, as a clause."""
    if held is None or held.driver is None or held.driver.total_bytes is None or held.driver.free_bytes is None:
        return ""
    cached = held.allocator.reserved_bytes - held.allocator.allocated_bytes
    return (
        f"; now that what had arrived was given back, {held.device} has {format_bytes(held.driver.total_bytes)}, "
        f"of which {format_bytes(held.driver.free_bytes)} are free, {format_bytes(cached)} are the allocator's cache, "
        f"and {format_bytes(held.allocator.allocated_bytes)} are allocated"
    )

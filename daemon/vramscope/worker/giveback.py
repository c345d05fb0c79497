"""Proof of give-back: the level of every place before a load, and what is beyond it when the model is gone."""

import gc
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch

from vramscope.devices.protocol import Device
from vramscope.loading.resident import ResidentModel
from vramscope.memory.resident import read_resident
from vramscope.memory.residue import (
    AFTER_RELEASE,
    AFTER_RESET,
    HOST,
    Level,
    PlaceResidue,
    Residue,
    ResidueMeasured,
    compare,
)


class GiveBack:
    """Looks at the devices and at this process; `models` is the bench's own mapping of what is loaded."""

    def __init__(self, devices: Mapping[str, Device], models: Mapping[str, ResidentModel]) -> None:
        self._devices = devices
        self._models = models
        self._before: dict[str, dict[str, Level]] = {}
        self._unmeasured: set[str] = set()
        self._contexts: dict[str, int] = {}
        # Place to the tensors (address and bytes) that no model owns and these models brought.
        self._left_by: dict[str, dict[tuple[int, int], frozenset[str]]] = {}

    def before_load(self, model: str) -> None:
        """Remember the level that this model's residue is measured against."""
        self._before[model] = levels = self._levels()
        self._unmeasured.add(model)
        self._note_left(levels, ())

    def note_step(self, model: str) -> None:
        """Remember what a load or a move of a model did to the devices beside what the model itself takes.

        How large a context is after the step that opened it: only what it grows by then is residue. And which tensors
        came that no model owns: they are this model's, whichever is unloaded first.
        """
        levels = {name: self._device_level(device) for name, device in self._devices.items() if device.is_open}
        for name, level in levels.items():
            if level.process_bytes is not None:
                self._contexts.setdefault(name, level.process_bytes)
        self._note_left(levels, [model])

    def measure(self, models: Iterable[str], after: str) -> ResidueMeasured:
        """What these models left behind, as far as a load of them was seen and they are gone."""
        gone = [model for model in models if model in self._before and model not in self._models]
        self._unmeasured.difference_update(gone)
        levels = self._levels() if gone else {}
        residues = tuple(
            Residue(model=model, after=after, places=tuple(self._compare(model, level) for level in levels.values()))
            for model in gone
        )
        self._note_left(levels, gone)
        return ResidueMeasured(at=time.time(), residues=residues)

    def measure_again(self) -> ResidueMeasured:
        """What every model that is gone left behind, now that the allocator's cache was given back."""
        return self.measure(tuple(self._before), AFTER_RELEASE)

    def measure_rest(self) -> ResidueMeasured:
        """The same for models that went without an unload: those that a failed step left, or never finished loading."""
        return self.measure(tuple(self._unmeasured), AFTER_RESET)

    def _compare(self, model: str, level: Level) -> PlaceResidue:
        before = self._before[model][level.where]
        if level.where != HOST and before.process_bytes is None:
            before = replace(before, process_bytes=self._contexts.get(level.where))
        return replace(compare(before, self._without_others(model, before, level)), level_bytes=level.nbytes)

    def _without_others(self, model: str, before: Level, level: Level) -> Level:
        """A level without the tensors that other models have left since the one before: they are no fault of this."""
        if level.live is None or before.live is None:
            return level
        left_by = self._left_by.get(level.where, {})
        new = level.live.items() - before.live.items()
        others = {tensor for tensor in new if (left := left_by.get(tensor)) and model not in left}
        process = level.process_bytes
        if process is not None and level.where == HOST:
            process -= sum(nbytes for _, nbytes in others)
        return replace(level, live=dict(level.live.items() - others), process_bytes=process)

    def _note_left(self, levels: Mapping[str, Level], models: Sequence[str]) -> None:
        """Blame each tensor that is seen for the first time on these models, and forget those that are gone."""
        for where, level in levels.items():
            known, live = self._left_by.get(where, {}), (level.live or {}).items()
            befores = {model: (self._before[model][where].live or {}).items() for model in models}
            self._left_by[where] = {
                tensor: known.get(tensor) or frozenset(model for model in models if tensor not in befores[model])
                for tensor in live
            }

    def _levels(self) -> dict[str, Level]:
        levels = {name: self._device_level(device) for name, device in self._devices.items()}
        return levels | {HOST: self._host_level()}

    def _device_level(self, device: Device) -> Level:
        owned = {address for model in self._models.values() for address in model.addresses(device)}
        owned_bytes = sum(model.nbytes_on(device) for model in self._models.values())
        held, live = device.snapshot(), device.live()
        reserved, driver = held.allocator.reserved_bytes, held.driver
        own = driver.process_used_bytes if driver else None
        used = driver.used_bytes if driver else None
        return Level(
            where=device.name,
            live=None if live is None else {key: nbytes for key, nbytes in live.items() if key not in owned},
            untold_bytes=max(0, held.allocator.allocated_bytes - owned_bytes),
            cache_bytes=reserved - held.allocator.allocated_bytes,
            process_bytes=own - reserved if own is not None and device.is_open else None,
            others_bytes=used - own if used is not None and own is not None else None,
            outside_bytes=used - reserved if used is not None and own is None else None,
        )

    def _host_level(self) -> Level:
        owned = {storage for model in self._models.values() for storage in model.storages()}
        resident = read_resident()
        process = None
        if resident is not None:
            owned_bytes = sum(model.host_nbytes for model in self._models.values())
            process = resident.anonymous_bytes + (resident.swap_bytes or 0) - owned_bytes
        return Level(where=HOST, live=_host_tensors(owned), process_bytes=process)


def _host_tensors(owned: set[int]) -> dict[int, int]:
    """Every storage in host memory that a tensor in Python still uses, and no model owns: address to bytes."""
    found: dict[int, int] = {}
    for each in gc.get_objects():
        # Not isinstance: it asks the object for its class, and lazy modules answer with an import.
        if issubclass(type(each), torch.Tensor):
            address, nbytes = _storage(each)
            if address and nbytes and address not in owned:
                found[address] = nbytes
    return found


def _storage(tensor: torch.Tensor) -> tuple[int, int]:
    """Address and bytes of what a tensor holds in host memory; zeros where it holds nothing there itself.

    Tensors that wrap others, or that have no shape yet, refuse to be asked.
    """
    try:
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            return 0, 0
        storage = tensor.untyped_storage()
        return storage.data_ptr(), storage.nbytes()
    except (RuntimeError, ValueError):
        return 0, 0

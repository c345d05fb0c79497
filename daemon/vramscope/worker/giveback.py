"""Proof of give-back: the level of every place before a load, and what is beyond it when the model is gone."""

import gc
import time
from collections.abc import Iterable, Mapping
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

    def before_load(self, model: str) -> None:
        """Remember the level that this model's residue is measured against."""
        self._before[model] = self._levels()
        self._unmeasured.add(model)

    def note_contexts(self) -> None:
        """Remember how large each context is after the step that opened it: only what it grows by then is residue."""
        for name, device in self._devices.items():
            if device.is_open and name not in self._contexts:
                opened = self._device_level(device).process_bytes
                if opened is not None:
                    self._contexts[name] = opened

    def measure(self, models: Iterable[str], after: str) -> ResidueMeasured:
        """What these models left behind, as far as a load of them was seen and they are gone."""
        gone = [model for model in models if model in self._before and model not in self._models]
        self._unmeasured.difference_update(gone)
        levels = self._levels() if gone else {}
        residues = (
            Residue(model=model, after=after, places=tuple(self._compare(model, level) for level in levels.values()))
            for model in gone
        )
        return ResidueMeasured(at=time.time(), residues=tuple(residues))

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
        return compare(before, level)

    def _levels(self) -> dict[str, Level]:
        levels = {name: self._device_level(device) for name, device in self._devices.items()}
        return levels | {HOST: self._host_level()}

    def _device_level(self, device: Device) -> Level:
        owned = {address for model in self._models.values() for address in model.addresses(device)}
        held = device.snapshot()
        reserved, driver = held.allocator.reserved_bytes, held.driver
        own = driver.process_used_bytes if driver else None
        used = driver.used_bytes if driver else None
        return Level(
            where=device.name,
            live={address: nbytes for address, nbytes in device.live().items() if address not in owned},
            cache_bytes=reserved - held.allocator.allocated_bytes,
            process_bytes=own - reserved if own is not None and device.is_open else None,
            others_bytes=used - own if used is not None and own is not None else None,
            outside_bytes=used - reserved if used is not None and own is None else None,
        )

    def _host_level(self) -> Level:
        on_host = [model for model in self._models.values() if model.is_in_host_memory]
        owned = {storage for model in on_host for storage in model.storages()}
        resident = read_resident()
        process = None
        if resident is not None:
            process = resident.anonymous_bytes + (resident.swap_bytes or 0) - sum(model.nbytes for model in on_host)
        return Level(where=HOST, live=_host_tensors(owned), process_bytes=process)


def _host_tensors(owned: set[int]) -> dict[int, int]:
    """Every storage in host memory that a tensor in Python still uses, and no model owns: address to bytes."""
    found: dict[int, int] = {}
    for each in gc.get_objects():
        # Not isinstance: it asks the object for its class, and lazy modules answer with an import.
        if issubclass(type(each), torch.Tensor) and each.device.type == "cpu" and each.layout is torch.strided:
            storage = each.untyped_storage()
            if storage.nbytes() and storage.data_ptr() not in owned:
                found[storage.data_ptr()] = storage.nbytes()
    return found

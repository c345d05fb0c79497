"""A fault for tests: with this directory on PYTHONPATH, each unload leaves a tensor of 64 MiB on its model's device."""

import importlib.abc
import importlib.machinery
import sys
from types import ModuleType
from typing import Any

TARGET = "vramscope.loading.resident"
LEAKED_BYTES = 64 << 20
kept: list[Any] = []


class _Leaking(importlib.abc.Loader):
    """Loads the module as it is, then replaces its `unload`."""

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        model: Any = module.ResidentModel
        unload = model.unload

        def leak(self: Any) -> None:
            import torch

            devices = {held.device for held in self._held.values()}
            kept.extend(device.upload(torch.zeros(LEAKED_BYTES, dtype=torch.uint8)) for device in devices)
            unload(self)

        model.unload = leak


class _Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name: str, path: Any, target: Any = None) -> importlib.machinery.ModuleSpec | None:
        if name != TARGET:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Leaking(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder())

"""Loads that stream straight to the device: what arrives, and what they take of RAM. Runs on the stub driver."""

import re
from pathlib import Path
from typing import Any

import torch
from side_by_side import SideBySide, loader_of, order_of
from tests.devices.contract import same_bits
from tests.loading.checkpoints import resolve_directory
from torch import nn

from vramscope.anatomy.synthetic import materialize
from vramscope.loading.order import slots

FULL_SIZE = "qwen2.5-0.5b"


def compare(side: SideBySide, name: str) -> dict[str, Any]:
    """Load a model to the device and to the host, and name what is not the same, bit for bit."""
    there, here = side.load(name, side.device), side.load(name, None)
    on_device, on_host = _places(there._module), _places(here._module)
    found = {
        "tensors": [len(on_device), len(on_host)],
        "places": sorted({str(tensor.device) for tensor in on_device.values()}),
        "different": [key for key, tensor in on_host.items() if not same_bits(on_device[key].cpu(), tensor)],
        "zeros": sum(not tensor.count_nonzero() for tensor in on_host.values()),
    }
    there.unload()
    here.unload()
    return found


def _places(module: nn.Module) -> dict[str, torch.Tensor]:
    return {slot.name: slot.tensor for slot in slots(module)}


def stock_full_size(side: SideBySide, cache: Path) -> int:
    """Make the full-size model known; returns the bytes of its tensors."""
    directory = materialize(FULL_SIZE, cache, progress=lambda _done, _total: None, check=lambda: None)
    checkpoint = resolve_directory(directory)
    loader = loader_of(FULL_SIZE, checkpoint, "float16")
    side.know(FULL_SIZE, order_of(checkpoint, torch.float16), loader)
    return checkpoint.tensor_bytes


def ram_of_load(side: SideBySide, name: str, *, straight: bool) -> dict[str, int]:
    """Load a model; returns by how many bytes this process's own memory grew: at most, and in the end."""
    before = _status("RssAnon")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew, see proc(5)
    began = _status("VmHWM")
    model = side.load(name, side.device if straight else None)
    grown = {"peak": _status("VmHWM") - began, "after": _status("RssAnon") - before, "nbytes": model.nbytes}
    model.unload()
    return grown


def _status(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024

"""Models on their way between host and device: what arrives, how, and what is left. Runs on the stub driver."""

import gc
import re
from pathlib import Path
from typing import Any

import torch
from tests.devices.contract import same_bits
from tests.loading.modules import IDENTITY, MODULES, Bag
from tests.loading.monitor import RecordingMonitor
from torch import nn

from vramscope.devices.cuda import CudaDevice
from vramscope.errors import VramscopeError
from vramscope.loading.dtypes import TORCH_DTYPES
from vramscope.loading.order import slots
from vramscope.loading.resident import ResidentModel
from vramscope.loading.staging import SLOT_BYTES

device = CudaDevice(0)


def odd() -> nn.Module:
    """Every dtype in shapes and layouts that seldom occur, a tied weight, and a tensor of several slots."""
    parts: dict[str, torch.Tensor | nn.Module] = {}
    for dtype in (*TORCH_DTYPES.values(), torch.complex128):
        whole = _noise(24 * dtype.itemsize, dtype).view(4, 6)
        views = (whole, whole.t(), whole[:, ::2], whole[1:, 1:], whole[:1].expand(4, 6), whole[:0], whole[2, 3])
        parts |= {f"{str(dtype)[6:]}_{index}": view for index, view in enumerate(views)}
    tied = nn.Parameter(torch.randn(3, 5).t(), requires_grad=False)
    large = nn.Parameter(_noise(5 * SLOT_BYTES // 2 + 6, torch.bfloat16), requires_grad=False)
    return Bag(**parts, large=large, first=Bag(weight=tied), second=Bag(weight=tied))


def _noise(nbytes: int, dtype: torch.dtype) -> torch.Tensor:
    bits = torch.randint(2 if dtype is torch.bool else 256, (nbytes,), dtype=torch.uint8)
    return bits.view(dtype)


def there_and_back(name: str) -> dict[str, Any]:
    """Move a model to the device and back twice, beside Module.to() as the pattern for its strides."""
    module = odd() if name == "odd" else MODULES[name]()
    model = ResidentModel(IDENTITY, module)
    before = [slot.tensor.clone() for slot in slots(module)]
    patterns = [slot.tensor.to("cuda:0").stride() for slot in slots(module)]
    level, staging, different = _allocated(), set(), 0
    for target in (device, None, device, None):
        staging.add(model.move(target, RecordingMonitor()).staging)
        now = [slot.tensor for slot in slots(module)]
        different += sum(not same_bits(tensor.cpu(), was) for tensor, was in zip(now, before, strict=True))
        different += sum(tensor.stride() != pattern for tensor, pattern in zip(now, patterns, strict=True))
    return {
        "different": different,
        "staging": sorted(staging),
        "tied": name != "odd" or module.first.weight is module.second.weight,
        "arenas": len({slot.tensor.untyped_storage().data_ptr() for slot in slots(module) if slot.tensor.numel()}),
        "allocated": _allocated() - level,
    }


def residue(cycles: int) -> dict[str, int]:
    """How many bytes more of RAM, and of torch's own pinned memory, there are after so many moves there and back."""
    model = ResidentModel(IDENTITY, Bag(weight=nn.Parameter(torch.ones(20 << 20), requires_grad=False)))
    _cycle(model)
    gc.collect()
    before = _anonymous()
    for _ in range(cycles):
        _cycle(model)
    return {"ram": _anonymous() - before, "pinned": torch.cuda.host_memory_stats().get("allocated_bytes.current", 0)}


def _cycle(model: ResidentModel) -> None:
    model.move(device, RecordingMonitor())
    model.move(None, RecordingMonitor())


def broken(checks: int | None = None, *, back: bool = False) -> dict[str, Any]:
    """Move a model of ten times 4 MiB while something is wrong, or is cancelled; what is left, and what works then."""
    weights = {f"w{n}": nn.Parameter(_noise(4 << 20, torch.float32), requires_grad=False) for n in range(10)}
    module = Bag(**weights)
    model, before = ResidentModel(IDENTITY, module), [slot.tensor.clone() for slot in slots(module)]
    if back:
        model.move(device, RecordingMonitor())
    level, failure = _allocated(), ""
    try:
        model.move(None if back else device, RecordingMonitor(checks_left=checks))
    except VramscopeError as error:
        failure = type(error).__name__
    found = {"failure": failure, "allocated": _allocated() - level, "place": model.device_name}
    found["same"] = all(same_bits(slot.tensor.cpu(), was) for slot, was in zip(slots(module), before, strict=True))
    return found


def _allocated() -> int:
    return device.snapshot().allocator.allocated_bytes


def _anonymous() -> int:
    found = re.search(r"^RssAnon:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024

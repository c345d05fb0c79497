"""Steps on a bench, on a device that copies tensors as a real one does: what they hold, and what they let go of."""

import gc
import weakref
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from tests.loading.checkpoints import save_checkpoint
from tests.loading.copying import CopyingDevice
from tests.memory.trees import limited_root

from vramscope.errors import OutOfMemoryError, StepError
from vramscope.loading.order import slots
from vramscope.memory.ledger import ledger
from vramscope.plan.schema import ModelSpec
from vramscope.settings import DeviceMode, WorkerSettings
from vramscope.worker.bench import Bench, StepBench
from vramscope.worker.protocol import RunStep
from vramscope.worker.reporter import Reporter

MIB = 1 << 20
DEVICE = "cuda:0"
TINY = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2}


@pytest.fixture
def without_collection():
    """No garbage collection by itself while the test runs."""
    gc.disable()
    yield
    gc.enable()


class Table:
    """A bench with models from directories (name to directory and dtype), and steps on it."""

    def __init__(self, device: CopyingDevice, home: Path, models: Mapping[str, tuple[Path, str]]) -> None:
        self.device, self.cgroups = device, home / "cgroup"
        settings = WorkerSettings(
            device_mode=DeviceMode.SIMULATED, cache=home, hub_cache=home, cgroup_root=self.cgroups
        )
        self.bench = Bench(settings, {DEVICE: device})
        self.bench.specs = {
            name: ModelSpec(name=name, source=str(source), dtype=dtype) for name, (source, dtype) in models.items()
        }

    @property
    def steps(self) -> StepBench:
        command = RunStep(run=1, step="step", kind="load", model="", fields={})
        return StepBench(self.bench, Reporter(command, lambda _message: None))

    @property
    def owners(self) -> dict[str, int]:
        sampled = self.bench.memory()
        (device,) = sampled.devices
        found = ledger(device, device.driver, sampled.models)
        assert sum(found.values()) == device.driver.total_bytes
        return found

    def storages(self, model: str) -> list[Callable[[], object]]:
        module = self.bench.models[model]._module
        return [weakref.ref(module), *(weakref.ref(slot.tensor.untyped_storage()) for slot in slots(module))]


def tensors() -> set[int]:
    """Every tensor that has memory; those on meta are what some releases of transformers leave in cycles."""
    found = (each for each in gc.get_objects() if issubclass(type(each), torch.Tensor))
    return {id(each) for each in found if not each.is_meta}


def failed(work: Callable[[], object]) -> str:
    """The text of an out-of-memory, which is all that a step's record keeps of it."""
    try:
        work()
    except OutOfMemoryError as error:
        return str(error)
    pytest.fail("there was room")


@pytest.mark.usefixtures("without_collection")
@pytest.mark.parametrize("name", ["qwen2", "mixtral"])
@pytest.mark.parametrize("straight", [True, False], ids=["load to the device", "move"])
def test_out_of_memory_halfway_holds_nothing_once_the_step_is_over(tmp_path, name, straight):
    """mixtral is put together in RAM; qwen2 streams. Nothing waits for the garbage collector."""
    source = save_checkpoint(name, tmp_path / "model", hidden_size=256, vocab_size=4000, num_hidden_layers=6)
    table = Table(CopyingDevice(capacity_bytes=24 * MIB), tmp_path, {"m": (source, "float32")})
    if not straight:
        table.steps.load("m", "cpu")
    gc.collect()
    before, held = table.device.allocated_bytes, tensors()
    step = (lambda: table.steps.load("m", DEVICE)) if straight else (lambda: table.steps.move("m", DEVICE))
    assert "model 'm' does not fit" in failed(step)
    assert table.device.copies, "it failed halfway"
    assert (table.device.live_copies, table.device.allocated_bytes) == (0, before)
    assert tensors() <= held
    assert set(table.bench.models) == (set() if straight else {"m"})


def test_the_ledger_shows_what_each_tensor_is_rounded_up_by(tmp_path):
    """20 tensors of 12,448 bytes and two rotary tables of 16 bytes take 31 blocks of 512 bytes."""
    source = save_checkpoint("llama", tmp_path / "model", **TINY, tie_word_embeddings=True)
    table = Table(CopyingDevice(), tmp_path, {"m": (source, "bfloat16")})
    table.steps.load("m", "cpu")
    table.steps.move("m", DEVICE)
    owners = table.owners
    assert (owners["parameters"], owners["buffers"]) == (12_448, 32)
    assert table.device.allocated_bytes == 15_872
    assert owners["allocator_rounding"] == 15_872 - 12_480


def test_what_fragmentation_holds_is_the_allocators_cache_and_no_leak(tmp_path):
    """Two models take turns on the device; of each pair one is left there."""
    source = save_checkpoint("qwen2", tmp_path / "model", hidden_size=256, vocab_size=4000)
    names = [f"m{number}" for number in range(6)]
    table = Table(
        CopyingDevice(), tmp_path, {name: (source, ("float32", "bfloat16")[n % 2]) for n, name in enumerate(names)}
    )
    for name in names:
        table.steps.load(name, DEVICE)
    for name in names[::2]:
        table.steps.unload(name)
    held = table.device.snapshot().allocator
    assert table.owners["allocator_cache"] == held.reserved_bytes - held.allocated_bytes > 0
    for name in names[1::2]:
        table.steps.unload(name)
    table.steps.release_cache()
    assert {owner: nbytes for owner, nbytes in table.owners.items() if nbytes} == {
        "cuda_context": MIB,
        "free": 63 * MIB,
    }


@pytest.mark.usefixtures("without_collection")
@pytest.mark.parametrize("place", ["cpu", DEVICE])
def test_a_model_that_holds_itself_is_let_go_when_it_is_unloaded(tmp_path, place):
    table = Table(CopyingDevice(), tmp_path, {"m": (save_checkpoint("qwen2", tmp_path / "model"), "bfloat16")})
    table.steps.load("m", place)
    module = table.bench.models["m"]._module
    module.self_ref = [module]
    module.register_forward_hook(lambda _module, _input, output, model=module: (output, model)[0])
    del module
    parts = table.storages("m")
    assert all(part() is not None for part in parts)
    table.steps.unload("m")
    assert [part for part in parts if part() is not None] == []
    assert table.bench.memory().models == ()


def test_a_model_comes_back_from_a_device_only_where_the_host_has_room(tmp_path):
    source = save_checkpoint("qwen2", tmp_path / "model", hidden_size=256, vocab_size=4000)
    table = Table(CopyingDevice(), tmp_path, {"m": (source, "float32")})
    table.steps.load("m", DEVICE)
    needed, copies = table.bench.models["m"].nbytes, len(table.device.copies)
    limited_root(table.cgroups, needed - 1)
    with pytest.raises(StepError) as caught:
        table.steps.move("m", "cpu")
    assert str(caught.value) == (
        f"model 'm' does not fit into the host's memory: it needs {needed} bytes ({needed / MIB:.1f} MiB) of RAM, and "
        f"{needed - 1} bytes ({(needed - 1) / MIB:.1f} MiB) of a limit of {needed - 1} bytes "
        f"({(needed - 1) / MIB:.1f} MiB) are available "
        "(unload another model first, or raise the container's memory limit)"
    )
    assert (table.bench.models["m"].device_name, len(table.device.copies)) == (DEVICE, copies)
    limited_root(table.cgroups, needed)
    table.steps.move("m", "cpu")
    assert table.bench.models["m"].device_name == "cpu"

"""A load that the host has no room for: refused before anything is read, or forced."""

import asyncio
from pathlib import Path

import pytest
import torch
from tests.loading.checkpoints import resolve_directory, save_checkpoint
from tests.memory.trees import limited_root

from vramscope.devices.simulated import SimulatedCard, SimulatedDevice
from vramscope.events import Event, Outcome, PhaseEnded
from vramscope.loading.reader import WINDOW_BYTES
from vramscope.memory.host import HostMemory
from vramscope.memory.resident import reset_peak
from vramscope.memory.snapshot import MemorySampled
from vramscope.plan.schema import ModelSpec
from vramscope.settings import Deadlines, DeviceMode, WorkerSettings
from vramscope.worker.admission import shortage
from vramscope.worker.client import WorkerClient
from vramscope.worker.protocol import Configure, RunStep

MIB = 1 << 20
LIMIT_BYTES = 10 * MIB
ROWS = 100_000
# Beside the embedding, which is the head too: two layers (q and o, k and v, their biases, the MLP, two norms), a norm.
REST = 2 * (2 * 32 * 32 + 2 * 16 * 32 + 32 + 2 * 16 + 3 * 32 * 64 + 2 * 32) + 32
PARAMETERS = ROWS * 32 + REST


@pytest.fixture(scope="module")
def directory(tmp_path_factory) -> Path:
    return save_checkpoint("qwen2", tmp_path_factory.mktemp("model"), vocab_size=ROWS)


@pytest.fixture(scope="module")
def checkpoint(directory):
    return resolve_directory(directory)


class Card(SimulatedDevice):
    """A device with memory of its own, as a GPU has."""

    def __init__(self) -> None:
        super().__init__("cuda:0", SimulatedCard(capacity_bytes=1 << 30, context_bytes=0))
        self.shares_host_memory = False


def room(available: int | None, limit: int | None = LIMIT_BYTES) -> HostMemory:
    return HostMemory(limit_bytes=limit, available_bytes=available)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_bytes_of_the_model_in_its_dtype_decide(checkpoint, dtype):
    needed = PARAMETERS * dtype.itemsize
    assert shortage(checkpoint, dtype, None, room(needed)) == ""
    assert f"it needs {needed} bytes" in shortage(checkpoint, dtype, None, room(needed - 1))


def test_the_shortage_names_need_room_and_limit(checkpoint):
    text = shortage(checkpoint, torch.float32, None, room(5 * MIB))
    assert text == (
        "it needs 12874880 bytes (12.3 MiB) of RAM, and 5242880 bytes (5.0 MiB) of a limit of "
        "10485760 bytes (10.0 MiB) are available"
    )
    assert "limit" not in shortage(checkpoint, torch.float32, None, room(5 * MIB, limit=None))


def test_nothing_is_refused_where_nobody_knows_what_is_left(checkpoint):
    assert shortage(checkpoint, torch.float32, None, room(None)) == ""


def test_a_simulated_device_holds_the_model_in_ram(checkpoint):
    device = SimulatedDevice("cuda:0", SimulatedCard(capacity_bytes=1 << 30, context_bytes=0))
    assert "12874880 bytes" in shortage(checkpoint, torch.float32, device, room(5 * MIB))


def test_a_model_that_is_smaller_than_the_window_needs_no_more_than_itself(checkpoint):
    assert f"it needs {PARAMETERS * 4} bytes" in shortage(checkpoint, torch.float32, Card(), room(MIB))


def test_a_stream_to_a_device_fits_where_the_model_does_not(tmp_path):
    """What the readers run ahead, and the largest tensor: that much is in RAM at once."""
    layers = resolve_directory(save_checkpoint("llama", tmp_path, vocab_size=8, intermediate_size=220_000))
    window = WINDOW_BYTES + 220_000 * 32 * 4
    assert "bytes" in shortage(layers, torch.float32, None, room(window))
    assert shortage(layers, torch.float32, Card(), room(window)) == ""
    assert f"it needs {window} bytes" in shortage(layers, torch.float32, Card(), room(window - 1))


def test_a_model_that_is_put_together_in_ram_has_to_fit_there_whole(tmp_path):
    fused = resolve_directory(save_checkpoint("mixtral", tmp_path))
    whole = fused.elements * 4
    assert f"it needs {whole} bytes" in shortage(fused, torch.float32, Card(), room(whole - 1))


def test_a_load_is_refused_before_anything_is_read_and_goes_on_where_it_is_forced(tmp_path, directory):
    """A real worker in a control group of 10 MiB. It is only told so: the kernel would kill it."""
    events: list[Event] = []
    settings = WorkerSettings(
        device_mode=DeviceMode.SIMULATED,
        cache=tmp_path,
        hub_cache=tmp_path,
        cgroup_root=limited_root(tmp_path / "cgroup", LIMIT_BYTES),
    )
    models = {
        name: ModelSpec(name=name, source=str(directory), dtype=dtype)
        for name, dtype in {"wide": "float32", "narrow": "bfloat16"}.items()
    }

    async def load(client: WorkerClient, run: int, model: str, **fields: object):
        return await client.request(
            run, RunStep(run=run, step="load", kind="load", model=model, fields={"model": model, **fields})
        )

    async def body() -> None:
        client = await WorkerClient.spawn(settings, Deadlines(), events.append)
        try:
            await client.wait_ready()
            await client.send(Configure(models=models, device="cuda:0"))
            refused = await load(client, 1, "wide")
            after_refusal = _sample(events)
            fits = await load(client, 2, "narrow")
            forced = await load(client, 3, "wide", force=True)
        finally:
            await client.kill()
        assert refused.outcome is Outcome.FAILED
        assert refused.error == (
            "model 'wide' does not fit into the host's memory: it needs 12874880 bytes (12.3 MiB) of RAM, and "
            "10485760 bytes (10.0 MiB) of a limit of 10485760 bytes (10.0 MiB) are available (take a smaller dtype, "
            "raise the container's memory limit, or load with force: true at your own risk)"
        )
        assert [event.phase for event in events if isinstance(event, PhaseEnded)][:2] == ["resolve", "resolve"]
        assert after_refusal.models == ()
        assert (fits.outcome, "forced" in fits.facts) == (Outcome.SUCCEEDED, False)
        assert (forced.outcome, forced.error) == (Outcome.SUCCEEDED, "")
        assert forced.facts["forced"].startswith("it needs 12874880 bytes")
        if reset_peak():
            before = next(event for event in events if isinstance(event, MemorySampled)).resident
            assert after_refusal.resident.peak_bytes - before.total_bytes < 4 * MIB
            assert _sample(events).resident.peak_bytes > after_refusal.resident.peak_bytes + PARAMETERS * 4

    asyncio.run(asyncio.wait_for(body(), 60))


def _sample(events: list[Event]) -> MemorySampled:
    return [event for event in events if isinstance(event, MemorySampled)][-1]

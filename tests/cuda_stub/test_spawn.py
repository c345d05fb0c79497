"""A process that has used CUDA: its worker is a new interpreter and can use it too, and a worker starts no process."""

import pytest

pytestmark = pytest.mark.cuda_stub

IMPORTS = """
import asyncio, os, sys
from pathlib import Path
import torch
from vramscope.devices.cuda import CudaDevice
from vramscope.plan.schema import ModelSpec
from vramscope.settings import Deadlines, DeviceMode, WorkerSettings
from vramscope.worker.bench import Bench, StepBench
from vramscope.worker.client import WorkerClient
from vramscope.worker.protocol import Configure, RunStep
from vramscope.worker.reporter import Reporter

torch.zeros(1).to("cuda:0")
settings = WorkerSettings(device_mode=DeviceMode.CUDA, cache=Path(CACHE), hub_cache=Path(CACHE))
models = {"tiny": ModelSpec(name="tiny", source="synthetic:tiny")}
"""
IN_A_WORKER = """
async def cycle():
    client = await WorkerClient.spawn(settings, Deadlines(), lambda event: None)
    try:
        await client.wait_ready()
        await client.send(Configure(models=models, device="cuda:0"))
        steps = [("load", {}), ("move", {"to": "cuda:0"}), ("unload", {})]
        for run, (kind, fields) in enumerate(steps):
            step = RunStep(run=run, step=kind, kind=kind, model="tiny", fields={"model": "tiny", **fields})
            yield (await client.request(run, step)).outcome.value
    finally:
        await client.kill()

async def collect():
    return [outcome async for outcome in cycle()]

asyncio.run(collect())
"""
STARTS = ("os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.system", "subprocess.Popen")
IN_THIS_PROCESS = f"""
started = []
sys.addaudithook(lambda event, _: started.append(event) if event in {STARTS} else None)
bench = Bench(settings, {{"cuda:0": CudaDevice(0)}})
bench.specs = models
step = RunStep(run=1, step="s", kind="load", model="tiny", fields={{}})
steps = StepBench(bench, Reporter(step, lambda message: None))
steps.load("tiny", "cpu")
steps.move("tiny", "cuda:0")
held = bench.memory().devices[0].allocator.allocated_bytes
steps.tokenize("tiny", "hello")
steps.unload("tiny")
steps.release_cache()
alone = list(started)
os.system("true")
[held > 0, alone, started]
"""


@pytest.fixture
def user(machine, checkpoint_cache):
    """A process that has a CUDA context."""
    return machine.console(IMPORTS.replace("CACHE", repr(str(checkpoint_cache))))


def test_a_worker_of_a_process_that_has_used_cuda_can_use_it(user):
    assert user.run(IN_A_WORKER, timeout_seconds=120) == ["succeeded"] * 3


def test_the_steps_of_a_model_start_no_process(user):
    held, alone, started = user.run(IN_THIS_PROCESS)
    assert held
    assert alone == []
    assert started == ["os.system"], "the hook sees it"

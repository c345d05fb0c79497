"""Looks at the worker and its devices from outside, on a schedule, so that they are known while the worker is busy."""

import asyncio
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from vramscope.devices.nvml import Nvml, NvmlError
from vramscope.events import Event
from vramscope.memory.host import HostSampled, read_host
from vramscope.memory.resident import read_resident
from vramscope.memory.snapshot import DeviceFacts, DriverMemory, DriverSampled, ResidentSampled
from vramscope.supervisor.state import WorkerState
from vramscope.supervisor.store import Store

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
# NVML answers in milliseconds; after this its last answer is no longer shown as if it were true now.
PATIENCE_SECONDS = 3.0
CUDA = "cuda"


async def watch_resident(store: Store, publish: Callable[[Event], None], cgroup_root: Path) -> None:
    """Publish what the worker's process holds in RAM, and what the host has, once a second, until cancelled."""
    await asyncio.gather(_watch_worker(store, publish), _watch_host(publish, cgroup_root))


async def _watch_worker(store: Store, publish: Callable[[Event], None]) -> None:
    while True:
        pid = store.state.worker.pid
        resident = read_resident(pid) if pid is not None else None
        if resident is not None:
            publish(ResidentSampled(at=time.time(), resident=resident))
        await asyncio.sleep(INTERVAL_SECONDS)


async def _watch_host(publish: Callable[[Event], None], cgroup_root: Path) -> None:
    """Ask in a thread: memory.stat may take seconds (https://github.com/google/cadvisor/issues/2259)."""
    while True:
        at = time.time()
        publish(HostSampled(at=at, memory=await asyncio.to_thread(read_host, cgroup_root)))
        await asyncio.sleep(INTERVAL_SECONDS)


async def watch_driver(store: Store, publish: Callable[[Event], None]) -> None:
    """Publish what NVML says about the worker's CUDA devices, once a second, until cancelled."""
    question: _Question | None = None
    nvml = Nvml()
    while True:
        worker = store.state.worker
        if question is not None and question.answered.is_set():
            question = None
        if worker.up and worker.pid is not None and worker.backend == CUDA:
            question = question or _Question(nvml, worker)
            await question.wait(PATIENCE_SECONDS)
            publish(question.answer)
        await asyncio.sleep(INTERVAL_SECONDS)


class _Question:
    """One look at all devices, in a thread that may hang: then it costs that thread, and nothing waits for it.

    The thread is a daemon, so that a driver that never answers does not keep the process from ending.
    """

    def __init__(self, nvml: Nvml, worker: WorkerState) -> None:
        self._nvml = nvml
        self._worker = worker
        self._asked_at = time.time()
        self._loop = asyncio.get_running_loop()
        self.answered = asyncio.Event()
        self._answer: DriverSampled | None = None
        threading.Thread(target=self._ask, name="nvml", daemon=True).start()

    @property
    def answer(self) -> DriverSampled:
        """The answer, or that there is none yet."""
        if self._answer is not None:
            return self._answer
        silence = f"NVML has not answered for {time.time() - self._asked_at:.0f} s"
        return self._failed(silence)

    async def wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self.answered.wait()
        except TimeoutError:
            return

    def _ask(self) -> None:
        try:
            self._answer = _sample(self._nvml, self._worker.devices, self._worker.pid or 0, self._asked_at)
        except Exception as error:  # the border of this probe: a surprise of the library must not blind us for good
            logger.exception("nvml_probe_failed")
            self._answer = self._failed(f"{type(error).__name__}: {error}")
        try:
            self._loop.call_soon_threadsafe(self.answered.set)
        except RuntimeError:
            return  # the loop is closed: the process is ending

    def _failed(self, reason: str) -> DriverSampled:
        errors = dict.fromkeys((facts.device for facts in self._worker.devices), reason)
        return DriverSampled(at=self._asked_at, pid=self._worker.pid or 0, devices={}, errors=errors)


def _sample(nvml: Nvml, devices: tuple[DeviceFacts, ...], pid: int, asked_at: float) -> DriverSampled:
    memory: dict[str, DriverMemory] = {}
    errors: dict[str, str] = {}
    for facts in devices:
        try:
            memory[facts.device] = nvml.sample(facts, pid)
        except NvmlError as error:
            errors[facts.device] = str(error)
    return DriverSampled(at=asked_at, pid=pid, devices=memory, errors=errors)

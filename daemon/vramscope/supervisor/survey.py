"""Finds out what a forecast starts from: the order of each model's tensors, and what each device has and holds.

What needs torch is asked of a worker once and kept in the cache; after that a forecast starts no process.
"""

import contextlib
import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from vramscope.devices.driver import Driver
from vramscope.devices.nvml import NvmlError
from vramscope.errors import SourceError, WorkerError
from vramscope.forecast.order import ModelOrder, OrderCache
from vramscope.forecast.predict import DeviceBudget
from vramscope.forecast.source import read_source
from vramscope.memory.snapshot import DeviceFacts
from vramscope.plan.schema import Plan
from vramscope.settings import Deadlines, DeviceMode, SimulationSettings, WorkerSettings
from vramscope.worker.client import WorkerClient
from vramscope.worker.protocol import Configure, Describe, OpenDevices

CUDA = "cuda"


@dataclass(frozen=True, kw_only=True)
class MeasuredDevice:
    """A real device: its facts, and what a CUDA context of this release of torch takes on it, in bytes."""

    facts: DeviceFacts
    context_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class Survey:
    """What is known. `problems` says for each other model why nothing is; `notes` are remarks for people."""

    backend: str
    orders: dict[str, ModelOrder]
    problems: dict[str, str]
    budgets: dict[str, DeviceBudget]
    notes: tuple[str, ...] = ()


async def survey(plan: Plan, settings: WorkerSettings, *, from_config: bool = False) -> Survey:
    """Look at models and devices. Raises WorkerError or UsageError if a worker is needed and does not start."""
    orders, problems, missing = _known_orders(plan, settings, from_config=from_config)
    machine = _Machine(settings)
    measured = machine.recall()
    if missing or measured is None:
        described, more_problems, measured = await _ask_worker(
            plan, settings, missing, machine, from_config=from_config
        )
        orders, problems = orders | described, problems | more_problems
    if not measured:
        budgets = simulated_budgets(settings.simulation)
        return Survey(backend="simulated", orders=orders, problems=problems, budgets=budgets)
    budgets, notes = machine.budgets(measured)
    return Survey(backend=CUDA, orders=orders, problems=problems, budgets=budgets, notes=notes)


def simulated_budgets(simulation: SimulationSettings) -> dict[str, DeviceBudget]:
    """The simulated devices as they will be."""
    return {
        name: DeviceBudget(
            total_bytes=capacity, context_bytes=simulation.context_bytes, other_bytes=simulation.other_bytes
        )
        for name, capacity in simulation.capacity_bytes.items()
    }


def _known_orders(
    plan: Plan, settings: WorkerSettings, *, from_config: bool
) -> tuple[dict[str, ModelOrder], dict[str, str], tuple[str, ...]]:
    """Orders from the cache, problems with the files, and the models that a worker has to describe."""
    orders: dict[str, ModelOrder] = {}
    problems: dict[str, str] = {}
    missing: list[str] = []
    cache = OrderCache(settings.cache)
    for name, spec in plan.models.items():
        try:
            source = read_source(spec, settings.cache, settings.hub_cache, from_config=from_config)
        except SourceError as error:
            problems[name] = str(error)
            continue
        if (order := cache.find(source.key)) is not None:
            orders[name] = order
        else:
            missing.append(name)
    return orders, problems, tuple(missing)


async def _ask_worker(
    plan: Plan, settings: WorkerSettings, models: tuple[str, ...], machine: "_Machine", *, from_config: bool
) -> tuple[dict[str, ModelOrder], dict[str, str], tuple[MeasuredDevice, ...]]:
    client = await WorkerClient.spawn(settings, Deadlines(), lambda _event: None)
    runs = itertools.count(1)
    try:
        ready = await client.wait_ready()
        await client.send(Configure(models=plan.models, device=plan.device))
        described = await client.describe(Describe(run=next(runs), models=models, from_config=from_config))
        measured: tuple[MeasuredDevice, ...] = ()
        if ready.backend == CUDA:
            opened = await client.request(next(runs), OpenDevices(run=2))
            if opened.error:
                raise WorkerError(opened.error)
            measured = machine.measure(ready.devices, client.pid)
        else:
            machine.remember(())
    finally:
        await client.stop()
    return described.orders, described.problems, measured


class _Machine:
    """The real devices of this machine, as measured once and remembered."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._mode = settings.device_mode
        self._driver = Driver(os.environ)
        self._adapter = TypeAdapter(dict[str, tuple[MeasuredDevice, ...]])
        self._path: Path = settings.cache / "devices.json"

    def recall(self) -> tuple[MeasuredDevice, ...] | None:
        """The devices, empty where a run would be simulated; None if a worker has to look."""
        if self._mode is DeviceMode.SIMULATED:
            return ()
        key = self._key()
        if key is None:
            return () if self._mode is DeviceMode.AUTO else None
        return self._remembered().get(key)

    def measure(self, devices: tuple[DeviceFacts, ...], pid: int) -> tuple[MeasuredDevice, ...]:
        """Take the worker's use of each device, which is all context as long as it holds no tensor."""
        measured = []
        for facts in devices:
            try:
                context = self._driver.sample(facts, pid).process_used_bytes
            except NvmlError:
                context = None
            measured.append(MeasuredDevice(facts=facts, context_bytes=context))
        self.remember(tuple(measured))
        return tuple(measured)

    def remember(self, devices: tuple[MeasuredDevice, ...]) -> None:
        """Keep what was found for the next forecast; without a place to keep it, that one asks again."""
        if (key := self._key()) is not None:
            with contextlib.suppress(OSError):
                self._keep({**self._remembered(), key: devices})

    def budgets(self, devices: tuple[MeasuredDevice, ...]) -> tuple[dict[str, DeviceBudget], tuple[str, ...]]:
        """What each device has, and what others hold of it now."""
        budgets: dict[str, DeviceBudget] = {}
        notes: list[str] = []
        for device in devices:
            name = device.facts.device
            try:
                used = self._driver.sample(device.facts, 0).used_bytes
            except NvmlError as error:
                used = None
                notes.append(f"{name}: what other processes hold is not known and counts as nothing: {error}")
            if device.context_bytes is None:
                notes.append(f"{name}: the size of the CUDA context is not known and counts as nothing")
            budgets[name] = DeviceBudget(
                total_bytes=device.facts.total_bytes or 0,
                context_bytes=device.context_bytes or 0,
                other_bytes=used or 0,
            )
        return budgets, tuple(notes)

    def _key(self) -> str | None:
        """What a measurement holds for: these devices with this release of torch; None where NVML does not answer."""
        try:
            return " ".join([f"torch-{version('torch')}", *self._driver.uuids()])
        except NvmlError:
            return None

    def _remembered(self) -> Mapping[str, tuple[MeasuredDevice, ...]]:
        try:
            return self._adapter.validate_json(self._path.read_bytes())
        except (OSError, ValidationError):
            return {}

    def _keep(self, known: Mapping[str, tuple[MeasuredDevice, ...]]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        new = self._path.with_suffix(".new")
        new.write_text(json.dumps({key: [asdict(device) for device in devices] for key, devices in known.items()}))
        new.replace(self._path)

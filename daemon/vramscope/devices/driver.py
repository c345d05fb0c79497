"""Asks the driver about one CUDA device, as the worker and a forecast do. See supervisor/driver_probe.py for all."""

import logging
import queue
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from vramscope.devices.cards import Card
from vramscope.devices.nvml import Nvml, NvmlError
from vramscope.devices.own import ProcessNames, own_use, process_names
from vramscope.devices.told import Told
from vramscope.devices.visibility import find
from vramscope.memory.snapshot import DeviceFacts, DriverMemory

logger = logging.getLogger(__name__)

# A healthy driver answers within some milliseconds.
ANSWER_SECONDS = 0.5
# How often an answer is asked for anew because memory was taken or given back while it was made.
TRIES = 3


def read_device(nvml: Nvml, card: Card, pids: Collection[int], names: ProcessNames) -> Told:
    """One picture of a device and of our processes on it, though NVML has to be asked apart. Raises NvmlError."""
    told = nvml.memory(card)
    before: tuple[int | None, str] | None = None
    for _ in range(TRIES):
        processes = nvml.processes(card, told.memory.total_bytes)
        own = own_use(processes.used_bytes, pids, names)
        if own in ((None, ""), before):
            break
        before = own
        told = nvml.memory(card)
    own_bytes, source = own
    memory = replace(told.memory, process_used_bytes=own_bytes, process_used_source=source)
    return Told(memory=memory, reason=told.reason or processes.reason)


class Driver:
    """One NVML session of this process: started once, and anew after a failure that calls for it.

    `environment` is that of the process whose CUDA devices are asked about.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._names = process_names(environment)
        self._nvml = Nvml()
        self._cards: tuple[Card, ...] = ()

    def uuids(self) -> tuple[str, ...]:
        """The UUIDs of all devices of this machine, in NVML's order. Raises NvmlError."""
        return tuple(card.uuid for card in self._listed())

    def sample(self, facts: DeviceFacts, pid: int) -> DriverMemory:
        """What the driver says about a CUDA device, and about one process on it. Raises NvmlError."""
        card = find(facts, self._cards, self._environment) or find(facts, self._listed(), self._environment)
        if card is None:
            raise NvmlError(f"{facts.device} is none of the {len(self._cards)} devices that NVML lists")
        try:
            return read_device(self._nvml, card, (pid,), self._names).memory
        except NvmlError as error:
            self._cards = ()
            if error.needs_renewal:
                self._nvml.stop()
            raise

    def _listed(self) -> tuple[Card, ...]:
        self._nvml.start()
        try:
            self._cards = self._nvml.cards(self._nvml.count())
        except NvmlError:
            self._nvml.stop()
            raise
        return self._cards


class BoundedNvml:
    """NVML for a thread that must not hang: what does not answer in time has said nothing, until it is back."""

    def __init__(self, environment: Mapping[str, str], seconds: float = ANSWER_SECONDS) -> None:
        self._seconds = seconds
        self._driver = Driver(environment)
        self._asking: threading.Thread | None = None

    def sample(self, facts: DeviceFacts, pid: int) -> DriverMemory | None:
        """As Driver.sample; None where NVML fails or does not answer."""
        if self._asking is not None and self._asking.is_alive():
            return None
        answers: queue.SimpleQueue[DriverMemory | None] = queue.SimpleQueue()
        self._asking = threading.Thread(target=self._ask, args=(facts, pid, answers.put), name="nvml", daemon=True)
        self._asking.start()
        try:
            return answers.get(timeout=self._seconds)
        except queue.Empty:
            return None

    def _ask(self, facts: DeviceFacts, pid: int, answer: Callable[[DriverMemory | None], None]) -> None:
        try:
            answer(self._driver.sample(facts, pid))
        except NvmlError:
            answer(None)
        except Exception:  # a surprise of the library must not cost each snapshot the whole wait
            logger.exception("nvml_failed")
            answer(None)

"""Tells once a second what the driver says about every device that it lists, under the names that people know.

A device that torch uses is `cuda:N`; every other one is `nvml:INDEX`, so that a run without CUDA shows the real cards,
too. Where NVML as a whole does not answer and no device is known, what is wrong stands under `all`.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from vramscope.devices.cards import Card
from vramscope.devices.own import process_names
from vramscope.devices.visibility import find
from vramscope.events import Event
from vramscope.memory.snapshot import DeviceFacts, DriverMemory, DriverSampled
from vramscope.supervisor.driver_sampler import DriverSampler, Reading, Sampled
from vramscope.supervisor.state import WorkerState
from vramscope.supervisor.store import Store

logger = logging.getLogger(__name__)

# A little longer than from one picture to the next, which is what is waited for.
INTERVAL_SECONDS = 1.2
# NVML answers in milliseconds; one question that takes longer than this hangs.
PATIENCE_SECONDS = 3.0
# After this an answer is no longer shown as if it were true now. A round of questions to 72 devices may take some 10 s.
OLDEST_SECONDS = 30.0
END_SECONDS = 0.2
CUDA = "cuda"
NVML = "nvml"
ALL = "all"
SILENCE = "NVML has not answered for"


async def watch_driver(store: Store, publish: Callable[[Event], None], environment: Mapping[str, str]) -> None:
    """Publish what NVML says about all devices, until cancelled. `environment` is what the worker inherits."""
    loop, pictured = asyncio.get_running_loop(), asyncio.Event()

    def pids() -> tuple[int, ...]:
        worker = store.state.worker.pid
        return (os.getpid(),) if worker is None else (os.getpid(), worker)

    def wake() -> None:
        try:
            loop.call_soon_threadsafe(pictured.set)
        except RuntimeError:
            return  # the loop is closed: the process is ending

    sampler = DriverSampler(pids, process_names(environment), wake)
    sampler.start()
    log = ReasonLog()
    try:
        while True:
            await _wait(pictured, INTERVAL_SECONDS)
            pictured.clear()
            sampled = sampler.look()
            event = driver_sampled(sampled, store.state.worker, environment)
            log.tell(event, sampled)
            publish(event)
    finally:
        sampler.stop(END_SECONDS)


async def _wait(event: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return


def driver_sampled(sampled: Sampled, worker: WorkerState, environment: Mapping[str, str]) -> DriverSampled:
    """What the sampler knows, as it was true when it was looked at and under each device's name."""
    devices: dict[str, DriverMemory] = {}
    answered: dict[str, float] = {}
    high_water: dict[str, int] = {}
    names = _names(sampled.cards, worker, environment)
    errors = _without_card(sampled, names, worker)
    cards = []
    for reading in sampled.readings:
        facts = _facts(reading, names.get(reading.card.index))
        cards.append(facts)
        reason = _silence(sampled, reading) or reading.reason
        if reading.answered_at is not None:
            answered[facts.device] = reading.answered_at
        if reason:
            errors[facts.device] = reason
        if reading.told is not None and not reason.startswith(SILENCE):
            devices[facts.device] = reading.told.memory
            if reading.high_water_bytes is not None:
                high_water[facts.device] = reading.high_water_bytes
    pictures = [reading.pictured_at for reading in sampled.readings if reading.told is not None]
    return DriverSampled(
        at=min(pictures, default=time.time()),
        pid=worker.pid or 0,
        devices=devices,
        errors=errors,
        cards=tuple(cards),
        answered_at=answered,
        high_water_bytes=high_water,
        driver_version=sampled.driver_version,
    )


def _names(cards: tuple[Card, ...], worker: WorkerState, environment: Mapping[str, str]) -> dict[str, DeviceFacts]:
    """NVML's index to the CUDA device that it is."""
    facts = worker.devices if worker.backend == CUDA else ()
    found = ((find(each, cards, environment), each) for each in facts)
    return {card.index: each for card, each in found if card is not None}


def _without_card(sampled: Sampled, names: Mapping[str, DeviceFacts], worker: WorkerState) -> dict[str, str]:
    """What is wrong with CUDA devices that are not found in NVML, and with NVML where no device is known."""
    silence = _silence(sampled, None)
    found = {facts.device for facts in names.values()}
    lost = [facts.device for facts in worker.devices if worker.backend == CUDA and facts.device not in found]
    if lost and (sampled.failure or silence or sampled.cards):
        reason = sampled.failure or silence or f"none of the {len(sampled.cards)} devices that NVML lists is this one"
        return dict.fromkeys(lost, reason)
    if not sampled.readings and not sampled.is_absent and (sampled.failure or silence):
        return {ALL: sampled.failure or silence}
    return {}


def _silence(sampled: Sampled, reading: Reading | None) -> str:
    """That NVML owes an answer for too long; empty where it does not."""
    waited = 0.0 if sampled.asking_since is None else sampled.looked_at - sampled.asking_since
    age = 0.0 if reading is None else sampled.looked_at - reading.asked_at
    if waited <= PATIENCE_SECONDS and age <= OLDEST_SECONDS:
        return ""
    asked = f" (asked: {sampled.question})" if sampled.question else ""
    return f"{SILENCE} {max(waited, age):.0f} s{asked}"


def _facts(reading: Reading, cuda: DeviceFacts | None) -> DeviceFacts:
    card = reading.card
    if cuda is not None:
        return replace(cuda, nvml_index=card.index)
    return DeviceFacts(
        device=card.device,
        backend=NVML,
        name=card.name,
        uuid=card.uuid,
        pci_bus_id=card.pci_bus_id,
        total_bytes=reading.told.memory.total_bytes if reading.told else None,
        nvml_index=card.index,
    )


class ReasonLog:
    """Says once what NVML does not tell of which devices, and once that it tells it again."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._is_absent = False

    def tell(self, event: DriverSampled, sampled: Sampled) -> None:
        if sampled.is_absent and not self._is_absent:
            logger.info("no_nvml_no_driver_to_ask", extra={"reason": sampled.failure})
        self._is_absent = sampled.is_absent
        # How long it is silent changes every second; that it is silent does not.
        now = {device: SILENCE if text.startswith(SILENCE) else text for device, text in event.errors.items()}
        news: dict[str, list[str]] = {}
        for device, reason in now.items():
            if self._known.get(device) != reason:
                news.setdefault(event.errors[device], []).append(device)
        for text, devices in news.items():
            logger.warning("nvml_does_not_tell", extra={"devices": ",".join(devices), "reason": text})
        if again := sorted(self._known.keys() - now.keys()):
            logger.info("nvml_tells_again", extra={"devices": ",".join(again)})
        self._known = now

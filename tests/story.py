"""The life of a daemon of any size as events, in which every metric occurs: what a page can show at most."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tests.picture import HOST_MEMORY, READY, RESIDENT, STARTED_AT, TOTAL, model_on, step

from vramscope.anatomy.components import Component
from vramscope.events import (
    CycleEnded,
    CycleStarted,
    Event,
    JournalSampled,
    Outcome,
    PlanStarted,
    StepEnded,
    StepProgressed,
    WebConfigRead,
    WorkerExited,
    WorkerStarted,
)
from vramscope.forecast.predict import DeviceLevels
from vramscope.memory.host import HostSampled
from vramscope.memory.residue import AFTER_UNLOAD, HOST, TREND_NEEDS, Level, Residue, ResidueMeasured, compare
from vramscope.memory.snapshot import (
    AllocatorMemory,
    DeviceFacts,
    DeviceSnapshot,
    DriverMemory,
    DriverSampled,
    MemorySampled,
    ModelSnapshot,
    ParameterGroup,
    Residency,
    ResidentSampled,
)
from vramscope.steps._catalog import step_kinds
from vramscope.supervisor.forecaster import ForecastCompared, ForecastMade
from vramscope.worker.lifecycle import ExitReason

MIB = 1 << 20
DTYPES = ("bfloat16", "float32", "uint8", "float16")
# Every part of a step that the worker tells of, by kind; see the calls of `phase` in worker/ and loading/.
PHASES: Mapping[str, Sequence[str]] = {
    "fetch": ("generate", "resolve", "download", "verify"),
    "tokenize": ("generate", "resolve", "download", "verify", "tokenizer", "tokenize"),
    "load": (
        *("generate", "resolve", "download", "verify", "import"),
        *("context", "read", "convert", "copy", "build", "synchronize"),
    ),
    "move": ("context", "copy", "synchronize"),
}
STEP_KINDS = frozenset(step_kinds())
EXIT_REASONS = frozenset(ExitReason)
# Tensors that an unload left behind, one of each class of sizes, in bytes.
OF_EVERY_SIZE = (MIB // 2, 5 * MIB, 50 * MIB, 200 * MIB)
CPU = "cpu"


@dataclass(frozen=True, kw_only=True)
class Life:
    """A daemon with so many models, devices and number types a model, and a plan with so many waits.

    Each unload leaves tensors of the sizes `leaves` behind, in bytes. A model takes `model_bytes`, and its load
    `load_seconds`. Where it `wanders`, each cycle moves it to the next device.
    """

    models: int = 1
    devices: int = 1
    dtypes: int = 1
    waits: int = 1
    leaves: Sequence[int] = OF_EVERY_SIZE
    model_bytes: int = 800 * MIB
    others_bytes: int = 300 * MIB
    load_seconds: float = 6.0
    wait_seconds: float = 20.0
    wanders: bool = True

    @property
    def model_names(self) -> tuple[str, ...]:
        return tuple(f"model-{number}" for number in range(self.models))

    @property
    def device_names(self) -> tuple[str, ...]:
        return tuple(f"cuda:{number}" for number in range(self.devices))

    @property
    def step_names(self) -> frozenset[str]:
        of_models = {
            f"{what} {name}" for name in self.model_names for what in ("tokenize", "load", "to", "back", "unload")
        }
        return frozenset({*of_models, "release", *(f"wait {number}" for number in range(self.waits))})

    def everything(self) -> Iterator[Event]:
        """Until every series is there that can be there at once: the last model is on its way to its device."""
        yield from self.opening(STARTED_AT)
        cycles = max(TREND_NEEDS, self.devices)
        for number in range(1, cycles + 1):
            yield from self.cycle(number, STARTED_AT + 100 * number)
        last = list(self.cycle(cycles + 1, STARTED_AT + 100 * (cycles + 1)))
        moving = f"to {self.model_names[-1]}"
        end = max(at for at, event in enumerate(last) if isinstance(event, StepProgressed) and event.step == moving)
        yield from self._gathering(STARTED_AT + 100 * (cycles + 1))
        yield from last[: end + 1]
        yield self._in_parts(STARTED_AT + 100 * (cycles + 2))
        yield from self.driver(STARTED_AT + 100 * (cycles + 2))

    def opening(self, at: float) -> Iterator[Event]:
        """The worker comes up, after one that died, and the plan begins."""
        yield WorkerExited(at=at, pid=16, reason=ExitReason.SIGNAL, detail="killed", expected=False)
        yield WorkerStarted(at=at, pid=17)
        facts = tuple(
            DeviceFacts(device=name, backend="cuda", name="NVIDIA A100", uuid=f"GPU-{name}", pci_bus_id=f"0000:{name}")
            for name in self.device_names
        )
        yield replace(READY, at=at, backend="cuda", devices=facts)
        yield WebConfigRead(at=at, problem="")
        yield PlanStarted(
            at=at,
            plan="story",
            sha256="ab" * 32,
            path="story.yaml",
            cycles=None,
            models=self.model_names,
            steps=tuple(sorted(self.step_names)),
        )

    def cycle(self, number: int, at: float, outcome: Outcome = Outcome.SUCCEEDED) -> Iterator[Event]:
        """Every model is loaded and moved; after the waits it comes back and goes."""
        yield CycleStarted(at=at, cycle=number)
        places: dict[str, str] = {}
        for place, name in enumerate(self.model_names):
            device = self.device_names[(place + number * self.wanders) % self.devices]
            yield from self._arrival(at, name, device, places)
            at += self.load_seconds + 2
        for wait in range(self.waits):
            yield from step(at, "wait", self.wait_seconds, name=f"wait {wait}", model="", cycle=number)
            at += self.wait_seconds
        for name in self.model_names:
            yield from self._departure(at, name, places, number)
            at += 2
        yield from step(at, "release", 0.01, name="release", model="", after=self._sample(at, places), outcome=outcome)
        yield CycleEnded(at=at + 1, cycle=number, outcome=outcome, seconds=self.seconds)

    @property
    def seconds(self) -> float:
        """How long a cycle takes."""
        return self.models * (self.load_seconds + 4) + self.waits * self.wait_seconds + 1

    def driver(self, at: float, used: Callable[[str], int] | None = None) -> Iterator[Event]:
        """What the probes tell: of driver, host memory, worker and journal. `used` is bytes of VRAM by device."""
        held = {name: used(name) if used else TOTAL - MIB for name in self.device_names}
        memory = {
            name: DriverMemory(
                total_bytes=TOTAL,
                used_bytes=nbytes,
                free_bytes=TOTAL - nbytes - MIB,
                reserved_bytes=MIB,
                process_used_bytes=max(0, nbytes - self.others_bytes),
                process_used_source="driver",
            )
            for name, nbytes in held.items()
        }
        yield DriverSampled(
            at=at,
            pid=17,
            devices=memory,
            answered_at=dict.fromkeys(memory, at),
            high_water_bytes=held,
        )
        yield HostSampled(at=at, memory=HOST_MEMORY, oom_kills=0)
        yield ResidentSampled(at=at, resident=RESIDENT)
        yield JournalSampled(at=at, reason="", written=int(at - STARTED_AT), dropped=0)

    def snapshot(self, name: str, place: str) -> ModelSnapshot:
        """A loaded model with every component in each of its number types."""
        parts = [(part, dtype) for part in Component for dtype in DTYPES[: self.dtypes]]
        share = self.model_bytes // len(parts)
        groups = tuple(
            ParameterGroup(component=part, dtype=dtype, device=place, parameters=share // 2, nbytes=share)
            for part, dtype in parts
        )
        return replace(model_on(place, name), groups=groups)

    def _gathering(self, at: float) -> Iterator[Event]:
        """Models come back from several devices."""
        for name in self.model_names:
            facts = {"bytes": self.model_bytes, "from": "mixed", "to": CPU, "copy_seconds": 0.4}
            yield StepEnded(
                at=at,
                step=f"back {name}",
                kind="move",
                model=name,
                cycle=1,
                outcome=Outcome.SUCCEEDED,
                seconds=0.9,
                error="",
                facts=facts,
            )

    def _in_parts(self, at: float) -> MemorySampled:
        """Each model has some of every component everywhere."""
        parts = [[self.snapshot(name, place) for place in (CPU, *self.device_names)] for name in self.model_names]
        models = tuple(
            replace(
                held[0],
                residency=Residency.MIXED,
                groups=tuple(group for part in held for group in part.groups),
                buffer_bytes={place: 128 for part in held for place in part.buffer_bytes},
            )
            for held in parts
        )
        everywhere = {f"{name} {place}": place for name in self.model_names for place in self.device_names}
        return replace(self._sample(at, everywhere), models=models)

    def _arrival(self, at: float, name: str, device: str, places: dict[str, str]) -> Iterator[Event]:
        """A model is tokenized for, loaded and moved to its device."""
        facts = {"tokens": 15, "resident_peak_bytes": RESIDENT.peak_bytes}
        yield from self._step(at, "tokenize", 0.5, "tokenize", name, facts=facts)
        places[name] = CPU
        yield from self._step(at + 0.5, "load", self.load_seconds, "load", name, places=places, facts=facts)
        yield from self._move(at + 0.5 + self.load_seconds, name, CPU, device, places)

    def _departure(self, at: float, name: str, places: dict[str, str], number: int) -> Iterator[Event]:
        """A model comes back and is unloaded; what it left is measured at every place."""
        yield from self._move(at, name, places[name], CPU, places)
        del places[name]
        yield from self._step(at + 1, "unload", 0.1, "unload", name, places=places)
        yield ResidueMeasured(at=at + 1.1, residues=(self._residue(name, number),))

    def _move(self, at: float, name: str, source: str, target: str, places: dict[str, str]) -> Iterator[Event]:
        places[name] = target
        facts = {"bytes": self.model_bytes, "from": source, "to": target, "copy_seconds": 0.4 + self.load_seconds / 60}
        what = "back" if target == CPU else "to"
        levels = DeviceLevels(
            parameter_bytes=1, buffer_bytes=1, allocated_bytes=1, reserved_bytes=2 * MIB, used_bytes=3
        )
        yield ForecastMade(at=at, step=f"{what} {name}", devices=dict.fromkeys(self.device_names, levels))
        yield from self._step(at, "move", 0.9, what, name, places=places, facts=facts)
        errors = {(device, quantity): 0 for device in self.device_names for quantity in ("allocated", "reserved")}
        yield ForecastCompared(at=at + 0.9, step=f"{what} {name}", error_bytes=errors, cause="")

    def _step(  # noqa: PLR0913 - a step's story has these parts
        self,
        at: float,
        kind: str,
        seconds: float,
        what: str,
        name: str,
        *,
        places: Mapping[str, str] | None = None,
        facts: dict[str, str | int | float | None] | None = None,
    ) -> Iterator[Event]:
        phases = PHASES.get(kind, ())
        parts = [(phase, seconds / len(phases), self.model_bytes) for phase in phases]
        after = None if places is None else self._sample(at, places)
        yield from step(at, kind, seconds, name=f"{what} {name}", model=name, phases=parts, after=after, facts=facts)

    def _sample(self, at: float, places: Mapping[str, str]) -> MemorySampled:
        devices = []
        for device in self.device_names:
            allocated = sum(self.model_bytes for place in places.values() if place == device)
            memory = AllocatorMemory(allocated_bytes=allocated + MIB, reserved_bytes=allocated + 2 * MIB)
            devices.append(
                DeviceSnapshot(device=device, backend="cuda", allocator=memory, driver=self._told(allocated))
            )
        models = tuple(self.snapshot(name, place) for name, place in places.items())
        return MemorySampled(at=at, devices=tuple(devices), models=models, resident=RESIDENT)

    def _told(self, allocated: int) -> DriverMemory:
        """What the driver says of a device on which PyTorch has allocated so many bytes."""
        own = allocated + 2 * MIB + 113 * MIB
        used = own + self.others_bytes
        return DriverMemory(
            total_bytes=TOTAL,
            used_bytes=used,
            free_bytes=TOTAL - used - MIB,
            reserved_bytes=MIB,
            process_used_bytes=own,
            process_used_source="driver",
        )

    def _residue(self, name: str, number: int) -> Residue:
        """What the model left after this cycle's unload, on top of what earlier ones left."""
        places = []
        for where in (*self.device_names, HOST):
            before, after = (
                Level(
                    where=where,
                    live={
                        each * len(OF_EVERY_SIZE) + at: size
                        for each in range(count)
                        for at, size in enumerate(self.leaves)
                    },
                    process_bytes=100 * MIB,
                    others_bytes=None if where == HOST else self.others_bytes,
                )
                for count in (number - 1, number)
            )
            places.append(compare(before, after))
        return Residue(model=name, after=AFTER_UNLOAD, places=tuple(places))

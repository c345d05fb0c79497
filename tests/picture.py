"""The published picture as events: Qwen2.5-0.5B in float16 on a simulated card of 12 GiB, one cycle of its plan."""

from collections.abc import Iterable, Iterator

from vramscope.events import (
    CycleEnded,
    CycleStarted,
    Event,
    Outcome,
    PhaseEnded,
    PhaseStarted,
    PlanEnded,
    PlanStarted,
    StepEnded,
    StepProgressed,
    StepStarted,
    WorkerStarted,
)
from vramscope.memory.host import HostMemory, HostSampled
from vramscope.memory.residue import AFTER_UNLOAD, HOST, Level, Residue, ResidueMeasured, compare
from vramscope.memory.snapshot import (
    AllocatorMemory,
    DeviceFacts,
    DeviceSnapshot,
    DriverMemory,
    MemorySampled,
    ModelSnapshot,
    ParameterGroup,
    Residency,
    ResidentMemory,
    WorkerReady,
)
from vramscope.supervisor.store import Store

STARTED_AT = 1_700_000_000.0
PARAMETERS = 494_032_768
PARAMETER_BYTES = 988_065_536
FILE_BYTES = 988_097_824
ALLOCATED = 996_322_304
RESERVED = 1_040_187_392
USED = 1_158_676_480
TOTAL = 12_884_901_888
CONTEXT = USED - RESERVED
HOST_MEMORY = HostMemory(limit_bytes=16_742_875_136, available_bytes=12_884_901_888)
RESIDENT = ResidentMemory(anonymous_bytes=1_288_490_188, file_bytes=314_572_800, swap_bytes=0, peak_bytes=1_717_986_918)
COMPONENTS = {"embedding": 136_134_656, "attention": 44_064_768, "mlp": 313_786_368, "norm": 46_976}
# A name that a plan may carry and that a page must not obey.
HOSTILE = '<img src=x onerror=alert(1)> "warm"\n\\'

READY = WorkerReady(
    at=STARTED_AT + 4,
    pid=17,
    backend="simulated",
    reason="torch 2.13.0+cpu is built without CUDA",
    versions={"python": "3.11.9", "torch": "2.13.0+cpu", "transformers": "5.24.0", "cuda": ""},
    devices=(DeviceFacts(device="cuda:0", backend="simulated", name="simulated 12 GiB", total_bytes=TOTAL),),
    import_seconds=3.1,
)


def model_on(place: str, name: str = "qwen") -> ModelSnapshot:
    return ModelSnapshot(
        model=name,
        residency=Residency.HOST if place == "cpu" else Residency.DEVICE,
        architecture="Qwen2ForCausalLM",
        dtype="float16",
        quantization="",
        revision="main",
        groups=tuple(
            ParameterGroup(component=component, dtype="float16", device=place, parameters=count, nbytes=2 * count)
            for component, count in COMPONENTS.items()
        ),
        buffer_bytes={place: 128},
        file_bytes=FILE_BYTES,
        file_elements=PARAMETERS,
        context_window_tokens=32768,
    )


def sample(
    at: float, place: str | None, *, allocated: int = 0, reserved: int = 0, is_open: bool = True
) -> MemorySampled:
    """What the worker tells with the model at `place`, None where it is not loaded."""
    used = reserved + (CONTEXT if is_open else 0)
    driver = DriverMemory(
        total_bytes=TOTAL, used_bytes=used, free_bytes=TOTAL - used, reserved_bytes=0, process_used_bytes=used
    )
    memory = AllocatorMemory(
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        requested_bytes=allocated - 8_256_640 if allocated else 0,
        active_bytes=allocated,
        inactive_split_bytes=1_048_576 if allocated else 0,
        allocated_peak_bytes=allocated,
        reserved_peak_bytes=reserved,
        alloc_retries=2,
        ooms=1,
    )
    return MemorySampled(
        at=at,
        devices=(DeviceSnapshot(device="cuda:0", backend="simulated", allocator=memory, driver=driver),),
        models=() if place is None else (model_on(place),),
        resident=RESIDENT,
    )


def step(  # noqa: PLR0913 - a step's story has these parts
    at: float,
    kind: str,
    seconds: float,
    *,
    name: str = "",
    model: str = "qwen",
    phases: Iterable[tuple[str, float, int | None]] = (),
    after: MemorySampled | None = None,
    facts: dict[str, str | int | float | None] | None = None,
    cycle: int = 1,
    outcome: Outcome = Outcome.SUCCEEDED,
    error: str = "",
) -> Iterator[Event]:
    """One run of one step, as the worker tells it: its phases, the memory afterwards, its end."""
    who = {"step": name or f"{kind} {model}".strip(), "kind": kind, "model": model}
    yield StepStarted(at=at, cycle=cycle, line=12, **who)
    for phase, duration, nbytes in phases:
        yield PhaseStarted(at=at, phase=phase, **who)
        if nbytes:
            yield StepProgressed(at=at, phase=phase, bytes_done=nbytes // 2, bytes_total=nbytes, **who)
        yield PhaseEnded(at=at + duration, phase=phase, seconds=duration, nbytes=nbytes, **who)
    if after is not None:
        yield after
    yield StepEnded(
        at=at + seconds, cycle=cycle, outcome=outcome, seconds=seconds, error=error, facts=facts or {}, **who
    )


def until_on_device() -> Iterator[Event]:
    """From the start of the plan until the model is on the device."""
    yield WorkerStarted(at=STARTED_AT + 1, pid=17)
    yield HostSampled(at=STARTED_AT + 2, memory=HOST_MEMORY, oom_kills=2)
    yield READY
    yield sample(STARTED_AT + 4, None, is_open=False)
    yield PlanStarted(
        at=STARTED_AT + 5,
        plan="qwen-cycle",
        sha256="ab" * 32,
        path="demo.yaml",
        cycles=3,
        models=("qwen",),
        steps=("back", "load qwen", "release", "to the card", "tokenize qwen", "unload qwen"),
    )
    yield CycleStarted(at=STARTED_AT + 5, cycle=1)
    facts = {"tokens": 15, "special_tokens": 0, "characters": 22, "words": 2}
    yield from step(STARTED_AT + 5, "tokenize", 0.5, phases=[("tokenizer", 0.4, None)], facts=facts)
    yield from step(
        STARTED_AT + 6,
        "load",
        1.25,
        phases=[("resolve", 0.25, None), ("read", 1.0, PARAMETER_BYTES)],
        after=sample(STARTED_AT + 7, "cpu", is_open=False),
        facts={"bytes": PARAMETER_BYTES + 128, "resident_peak_bytes": RESIDENT.peak_bytes},
    )
    yield from step(
        STARTED_AT + 8,
        "move",
        0.125,
        name="to the card",
        phases=[("copy", 0.125, PARAMETER_BYTES)],
        after=sample(STARTED_AT + 8, "cuda:0", allocated=ALLOCATED, reserved=RESERVED),
        facts={"bytes": PARAMETER_BYTES + 128, "from": "cpu", "to": "cuda:0", "copy_seconds": 0.125},
    )


def back_and_gone() -> Iterator[Event]:
    """From the device back to RAM, unloaded, and the allocator's cache released; the plan's only cycle ends."""
    yield from step(
        STARTED_AT + 20,
        "move",
        0.25,
        name="back",
        phases=[("copy", 0.25, PARAMETER_BYTES)],
        after=sample(STARTED_AT + 20, "cpu", reserved=RESERVED),
        facts={"bytes": PARAMETER_BYTES + 128, "from": "cuda:0", "to": "cpu", "copy_seconds": 0.25},
    )
    yield from step(STARTED_AT + 21, "unload", 0.01, after=sample(STARTED_AT + 21, None, reserved=RESERVED))
    yield from step(STARTED_AT + 22, "release", 0.01, model="", after=sample(STARTED_AT + 22, None))
    yield CycleEnded(at=STARTED_AT + 23, cycle=1, outcome=Outcome.SUCCEEDED, seconds=18.0)
    yield PlanEnded(at=STARTED_AT + 23, outcome=Outcome.SUCCEEDED)


def left_behind(live: int = 0, cache: int = RESERVED) -> Iterator[Event]:
    """What the worker measures after an unload: tensors of this many bytes in all are left, and this much cache."""
    before, after = (
        Level(where="cuda:0", live={1: held} if held else {}, cache_bytes=kept, process_bytes=CONTEXT, others_bytes=0)
        for held, kept in ((0, 0), (live, cache))
    )
    on_host = Level(where=HOST, process_bytes=RESIDENT.anonymous_bytes)
    places = (compare(before, after), compare(on_host, on_host))
    yield ResidueMeasured(at=STARTED_AT + 21, residues=(Residue(model="qwen", after=AFTER_UNLOAD, places=places),))


def running(phase: str = "copy") -> Iterator[Event]:
    """A move that is half done."""
    who = {"step": "move qwen", "kind": "move", "model": "qwen"}
    yield StepStarted(at=STARTED_AT + 30, cycle=1, line=14, **who)
    yield PhaseStarted(at=STARTED_AT + 30, phase=phase, **who)
    yield StepProgressed(
        at=STARTED_AT + 31,
        phase=phase,
        bytes_done=PARAMETER_BYTES // 2,
        bytes_total=PARAMETER_BYTES,
        **who,
    )


def told(*stories: Iterable[Event]) -> Store:
    """A store that has seen these events."""
    store = Store(STARTED_AT)
    for story in stories:
        for event in story:
            store.apply(event)
    return store

"""The labels of docs/metrics.md and the cardinality budget: how many values and series there can be."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tests.story import EXIT_REASONS, PHASES, STEP_KINDS

from vramscope.anatomy.components import Component
from vramscope.collectors._catalog import factories
from vramscope.collectors.models import QUANTIZATIONS
from vramscope.collectors.moves import TO_DEVICE, TO_HOST
from vramscope.collectors.steps import DURATION_BUCKETS_SECONDS
from vramscope.events import Outcome
from vramscope.memory import residue
from vramscope.memory.owners import OWNERS
from vramscope.memory.snapshot import Residency

RESIDENT_KINDS = ("anonymous", "file", "swap")
CAUSES = ("live_tensors", "allocator_cache", "context_growth", "process", "other_processes", "outside_allocator")


@dataclass(frozen=True, kw_only=True)
class Label:
    """What a label means, and what bounds it: the words of the code, or a thing that there are few of."""

    meaning: str
    bound: str = ""
    words: Collection[str] = ()


PLAN, MACHINE, ONE = "names in the plan", "devices of the machine", "one series each"
LABELS: Mapping[str, Label] = {
    "model": Label(meaning="the model's name in the plan; empty for a step without one", bound=PLAN),
    "step": Label(meaning="the step's name in the plan, or what it is called there without one", bound=PLAN),
    "device": Label(
        meaning="`cuda:0` as PyTorch counts, `nvml:3` for a card that only the driver tells of, `cpu` for RAM; `all` for "
        "the driver as a whole, `mixed` for a move from several",
        bound=MACHINE,
    ),
    "where": Label(meaning="a device, or `host` for RAM", bound=MACHINE),
    "kind": Label(meaning="of a step, or of the worker's memory", words=(*sorted(STEP_KINDS), *RESIDENT_KINDS)),
    "phase": Label(meaning="a part of a step", words=sorted({each for parts in PHASES.values() for each in parts})),
    "outcome": Label(meaning="how a step or cycle ended", words=[each.value for each in Outcome]),
    "reason": Label(meaning="why a worker ended", words=sorted(EXIT_REASONS)),
    "state": Label(meaning="where a model is", words=[each.value for each in Residency]),
    "component": Label(
        meaning="a part of a model; any name of a tensor falls into one", words=[each.value for each in Component]
    ),
    "dtype": Label(meaning="a number type of PyTorch", bound="those of the model's parameters, mostly one or two"),
    "owner": Label(meaning="who has the bytes", words=[each.owner for each in OWNERS]),
    "cause": Label(meaning="why bytes were left", words=CAUSES),
    "size": Label(meaning="of a single tensor", words=(*residue.SIZE_CLASSES, residue.LARGEST_CLASS)),
    "direction": Label(meaning="of a copy", words=(TO_DEVICE, TO_HOST)),
    "quantity": Label(meaning="what was forecast", words=("allocated", "reserved")),
    "collector": Label(meaning="a file of daemon/vramscope/collectors", words=[each.name for each in factories()]),
    "le": Label(
        meaning="bucket of a histogram, in seconds",
        words=[*(str(float(each)) for each in DURATION_BUCKETS_SECONDS), "+Inf"],
    ),
    "quantization": Label(
        meaning="transformers' word for the method; `other` for any other, empty without",
        words=(*QUANTIZATIONS, "other"),
    ),
    "backend": Label(meaning="what is behind a device", words=("cuda", "simulated", "nvml")),
    "architecture": Label(meaning="from the model's config.json", bound=f"{ONE} model"),
    "revision": Label(meaning="of the model's source, from the plan", bound=f"{ONE} model"),
    "name": Label(meaning="the device's product name", bound=f"{ONE} device"),
    "uuid": Label(meaning="the driver's own name for the device", bound=f"{ONE} device"),
    "pci_bus_id": Label(meaning="where the device sits", bound=f"{ONE} device"),
    "nvml_index": Label(meaning="the device's place in the driver's list", bound=f"{ONE} device"),
    "plan": Label(meaning="the plan's name", bound=f"{ONE} daemon"),
    "sha256": Label(meaning="of the plan's file", bound=f"{ONE} daemon"),
    "version": Label(meaning="of vramscope", bound=f"{ONE} daemon"),
    "python": Label(meaning="version", bound=f"{ONE} daemon"),
    "torch": Label(meaning="version", bound=f"{ONE} daemon"),
    "transformers": Label(meaning="version", bound=f"{ONE} daemon"),
    "cuda": Label(meaning="version; empty where it is none", bound=f"{ONE} daemon"),
}


@dataclass(frozen=True, kw_only=True)
class Budget:
    """How many series a daemon shows at most. The first number type of a model is in `model`."""

    daemon: int
    device: int
    model: int
    model_and_device: int
    dtype: int
    step: int

    def most(self, *, models: int, devices: int, steps: int, dtypes: int = 1) -> int:
        """The series of a daemon with so many models (of so many number types each), devices and steps of its plan."""
        of_models = self.model + self.dtype * (dtypes - 1) * (devices + 1) + self.model_and_device * devices
        return self.daemon + self.device * devices + models * of_models + self.step * steps


# To raise one of these is a decision about every user's Prometheus.
BUDGET = Budget(daemon=282, device=35, model=71, model_and_device=27, dtype=14, step=2)
TEXT = """\
## Cardinality budget

A daemon with M models and N steps in its plan, and D devices, shows at most

    {daemon} + {device} D + {model} M + {model_and_device} M D + {step} N

series, and {dtype} (D + 1) more for each further number type of a model. This is the worst case: each component of every model
is in parts on every device, every model left tensors of every size behind, and every optional value is known. A model that is
whole takes {whole} series less on each device.

| series | each | what |
|---:|---|---|
| {daemon} | daemon | {kinds} kinds of steps with 4 outcomes and a histogram of {buckets} series ({of_kinds}); worker, host, plan, journal, collectors |
| {device} | device | driver, PyTorch's allocator, owners of the ledger, forecast, moves, identity |
| {model} | model | state, identity, files; {components} components; {phases} phases of its steps with seconds and bytes (a step is in one phase at a time); residue in RAM |
| {model_and_device} | model and device | residue with causes and sizes, speed of the last move in both directions; parameters and bytes of {components} components, buffers |
| {dtype} | further number type of a model, in RAM and on each device | parameters and bytes of {components} components |
| {step} | step of the plan | last duration; tokens of a step that counts them (a `tokenize`) |

| a daemon with | at most |
|---|---:|
{rows}

Nothing else adds series: no cycle, no restart, no error, no process, no file, no tensor. A model of 60,000 tensors shows as
many series as one of 12. `vramscope_*_info` change a label where what they tell about changes (a new version, another
plan), which ends one series and begins another.
"""
EXAMPLES = ((1, 1, 8), (3, 2, 20), (4, 8, 30), (10, 16, 100))


def labels_table(used: Collection[str]) -> str:
    """The labels in Markdown. Raises KeyError for one that nobody has described."""
    undescribed = sorted(set(used) - set(LABELS))
    if undescribed:
        raise KeyError(f"docs/budget.py says nothing of the labels {', '.join(undescribed)}")
    lines = ["| label | meaning | values |", "|---|---|---|"]
    for name, label in LABELS.items():
        if name in used:
            values = ", ".join(f"`{word}`" for word in label.words) or label.bound
            lines.append(f"| `{name}` | {label.meaning} | {values} |")
    return "\n".join(lines) + "\n"


def budget() -> str:
    """The budget in Markdown."""
    buckets = len(DURATION_BUCKETS_SECONDS) + 3  # and those beyond, the sum, the count
    rows = (
        f"| {models} model{'s' * (models > 1)}, {devices} device{'s' * (devices > 1)}, {steps} steps "
        f"| {BUDGET.most(models=models, devices=devices, steps=steps):,} |"
        for models, devices, steps in EXAMPLES
    )
    return TEXT.format(
        **vars(BUDGET),
        kinds=len(STEP_KINDS),
        buckets=buckets,
        of_kinds=len(STEP_KINDS) * (len(Outcome) + buckets),
        components=len(Component),
        whole=2 * len(Component) + 1,
        phases=sum(map(len, PHASES.values())),
        rows="\n".join(rows),
    )

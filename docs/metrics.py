"""Writes docs/metrics.md, the reference of the metrics: `python -m docs.metrics` (or `make docs`).

Name, type, help and labels are what the collectors say when they are told the story of tests/story.py, in which every
metric occurs. A test compares what is committed with what this makes.
"""

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from docs.budget import budget, labels_table
from prometheus_client.core import Metric
from tests.picture import STARTED_AT
from tests.story import EXIT_REASONS, STEP_KINDS, Life

from vramscope.collectors._catalog import factories
from vramscope.collectors._frame import Collector, CollectorFactory, Guarded, Listener, Sources
from vramscope.supervisor.store import Store

TARGET = Path(__file__).with_suffix(".md")
UNITS = (
    ("_timestamp_seconds", "seconds since 1970"),
    ("_bytes_per_second", "bytes per second"),
    ("_seconds", "seconds"),
    ("_bytes", "bytes"),
    ("_ratio", "0 to 1"),
    ("_tokens", "tokens"),
)
OWN = "Whether each of the groups above worked, and how long it took."
HEAD = """\
# Metrics

<!-- Made by `make docs` from the collectors; not to be edited. -->

What `/metrics` serves, by the collector that makes it (`daemon/vramscope/collectors`, one file each). Beside these labels
Prometheus sets `instance` and `job`; the alerts expect the job `vramscope`.

**What is absent is unknown.** A value that nobody could tell (the driver does not answer, the kernel has no limit, nothing
has been measured yet) has no series. It is never written as 0, so 0 always means none. Queries over several metrics need
`or` where one may be absent.

**What stays when.**

| series | there from | there until |
|---|---|---|
| counters and histograms | the start, with 0 for every kind, outcome and reason; those of moves from the first move | the daemon ends; `rate` and `increase` take its restart for what it is |
| last results (durations, phases, residue, tokens, peaks, speeds) | the first result | the plan no longer names the model or step; a new run of a step takes away the phases of the one before, and `vramscope_residue_growth_bytes` begins anew with each worker |
| a loaded model (`vramscope_model_*` but its state) | the load | the unload, or the end of the worker |
| what the worker tells (`vramscope_torch_*`, ledger, forecast, resident memory) | the worker is ready | the worker ends; the cards that NVML lists keep `vramscope_nvml_*` |
| what the driver tells (`vramscope_nvml_*`) | the first answer | 3 s without an answer; `vramscope_nvml_up` is 0 then, and the time of the last answer stays |
| the running step (`vramscope_step_running`, `_started_`, `_progress_`) | the step begins | the step ends |
| the journal (`vramscope_journal_*`) | the start of a daemon with `--journal` | the daemon ends |
| `*_info` | what it tells about is known | it changes: the old labels go and new ones come |

Times are seconds since 1970 or durations in seconds, sizes are bytes, shares go from 0 to 1. A simulated device says so in
the labels `backend` and `name` of `vramscope_device_info`.
"""


class UntoldError(ValueError):
    """A collector makes a metric that the story does not come to."""


@dataclass(frozen=True, kw_only=True)
class Room:
    """What one collector makes in the story."""

    name: str
    text: str
    families: Sequence[Metric]


def sources(life: Life, store: Store) -> Sources:
    """What the collectors read when they are told about a life."""
    return Sources(
        state=lambda: store.state,
        clock=lambda: STARTED_AT,
        model_names=lambda: frozenset(life.model_names),
        step_names=lambda: life.step_names,
        step_kinds=STEP_KINDS,
        exit_reasons=EXIT_REASONS,
    )


def rooms(makers: Iterable[CollectorFactory], life: Life) -> Iterator[Room]:
    """Tell every collector the whole story; raises UntoldError for a metric without a series at its end."""
    store = Store(STARTED_AT)
    collectors = {maker: maker.create(sources(life, store)) for maker in makers}
    for event in life.everything():
        store.apply(event)
        for collector in collectors.values():
            if isinstance(collector, Listener):
                collector.on_event(event)
    for maker, collector in collectors.items():
        yield Room(name=maker.name, text=_first_line(collector), families=_told(collector))
    frame = Guarded({maker.name: collector for maker, collector in collectors.items()})
    made = {family.name for collector in collectors.values() for family in collector.collect()}
    own = [family for family in frame.collect() if family.name not in made]
    yield Room(name="the collectors themselves", text=OWN, families=own)


def _first_line(collector: Collector) -> str:
    """What the file of a collector says it is."""
    return (inspect.getdoc(inspect.getmodule(type(collector))) or "").partition("\n")[0]


def _told(collector: Collector) -> list[Metric]:
    families = list(collector.collect())
    silent = [family.name for family in families if not family.samples]
    if silent:
        raise UntoldError(f"no event of tests/story.py gives a series of {', '.join(silent)}: let Life tell one")
    return families


def shown_name(family: Metric) -> str:
    """The name as it stands on the page."""
    return family.name + {"counter": "_total", "info": "_info"}.get(family.type, "")


def label_names(family: Metric) -> list[str]:
    """The labels of a family, in the order in which it first shows them."""
    return list(dict.fromkeys(label for sample in family.samples for label in sample.labels))


def _unit(name: str) -> str:
    bare = re.sub("_total$", "", name)
    return next((unit for ending, unit in UNITS if bare.endswith(ending)), "")


def _table(room: Room) -> Iterator[str]:
    yield f"### {room.name}\n\n{room.text}\n\n| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n"
    for family in room.families:
        name = shown_name(family)
        labels = ", ".join(f"`{label}`" for label in label_names(family))
        meaning = family.documentation.replace("|", r"\|")
        yield f"| `{name}` | {family.type} | {_unit(name)} | {labels} | {meaning} |\n"
    yield "\n"


def reference(makers: Iterable[CollectorFactory]) -> str:
    """The whole page, in Markdown. Raises UntoldError."""
    found = list(rooms(makers, Life()))
    tables = "".join(line for room in found for line in _table(room))
    used = {label for room in found for family in room.families for label in label_names(family)}
    return "\n".join([HEAD, "## Labels\n", labels_table(used), budget(), "## Reference\n", tables.rstrip("\n") + "\n"])


if __name__ == "__main__":
    TARGET.write_text(reference(factories()), encoding="utf-8")

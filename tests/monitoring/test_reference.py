"""docs/metrics.md: it says what the collectors make, all of it, and no daemon shows more series than it promises."""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from docs.budget import BUDGET, LABELS, labels_table
from docs.metrics import TARGET, UntoldError, label_names, reference, rooms, shown_name, sources
from prometheus_client.core import Metric
from tests.loading.modules import IDENTITY, Bag, parameter
from tests.monitoring.grafana import metrics_read, read
from tests.picture import STARTED_AT, step
from tests.story import PHASES, Life

import vramscope
from vramscope.collectors._catalog import build_registry, factories
from vramscope.collectors._frame import CollectorFactory, gauge
from vramscope.events import Event, Outcome, WorkerExited, WorkerStarted
from vramscope.loading.resident import ResidentModel
from vramscope.memory.snapshot import MemorySampled
from vramscope.supervisor.store import Store
from vramscope.worker.lifecycle import ExitReason

CODE = Path(vramscope.__file__).parent
DEFINERS = {"gauge", "info", "Counter", "Histogram", "GaugeMetricFamily", "CounterMetricFamily"}
TENSORS = 60_000


def families() -> list[Metric]:
    return [family for room in rooms(factories(), Life()) for family in room.families]


def test_the_committed_page_is_what_the_collectors_make() -> None:
    committed = TARGET.read_text(encoding="utf-8")
    assert committed == reference(factories()), "run `make docs` and commit docs/metrics.md"


def calls(tree: ast.AST, names: set[str]) -> Iterator[ast.expr]:
    """The first argument of each call of one of these functions or methods."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in names:
                yield node.args[0]


def pattern(name: ast.expr) -> str:
    """A regular expression for a metric's name in the code, which may be an f-string."""
    parts = name.values if isinstance(name, ast.JoinedStr) else [name]
    return "".join(re.escape(part.value) if isinstance(part, ast.Constant) else r"\w+" for part in parts)


@pytest.mark.parametrize("path", sorted((CODE / "collectors").glob("*.py")), ids=lambda path: path.stem)
def test_every_metric_that_the_code_defines_is_told(path: Path) -> None:
    names = [name for family in families() for name in (family.name, shown_name(family))]
    for first in calls(ast.parse(path.read_text(encoding="utf-8")), DEFINERS):
        if isinstance(first, ast.Constant | ast.JoinedStr):
            wanted = pattern(first)
            assert any(re.fullmatch(wanted, name) for name in names), f"{path.name}: docs/metrics.md lacks {wanted}"


def test_a_metric_without_a_series_in_the_story_is_refused() -> None:
    @dataclass
    class New:
        def collect(self) -> Iterator[Metric]:
            yield gauge("vramscope_new_bytes", "New.", ["device"], [])

    with pytest.raises(UntoldError, match="vramscope_new_bytes"):
        reference([*factories(), CollectorFactory(name="new", create=lambda _sources: New())])


def test_a_label_that_nobody_described_is_refused_and_no_description_is_left_over() -> None:
    with pytest.raises(KeyError, match="pid"):
        labels_table({"model", "pid"})
    assert {label for family in families() for label in label_names(family)} == set(LABELS)


def test_labels_with_a_list_of_words_show_no_other() -> None:
    for life in (Life(), Life(models=3, devices=2, dtypes=3)):
        for family in page(life, life.everything()):
            for sample in family.samples:
                for name, value in sample.labels.items():
                    assert not (words := LABELS[name].words) or value in {"", *words}, (sample.name, name, value)


def test_the_phases_are_those_of_the_code() -> None:
    """What the worker calls its phases comes to the metrics as it is."""
    written = {
        each.value
        for path in CODE.rglob("*.py")
        for each in calls(ast.parse(path.read_text(encoding="utf-8")), {"phase", "enter_phase", "record_phase"})
        if isinstance(each, ast.Constant)
    }
    # The names of loading/weights.py are keys of a dictionary, those of loading/hub.py come from another process.
    told_otherwise = {"read", "convert", "copy", "download", "verify"}
    assert written | told_otherwise == {phase for phases in PHASES.values() for phase in phases}


def page(life: Life, *stories: Iterator[Event]) -> list[Metric]:
    """What the real collectors show after these events."""
    store = Store(STARTED_AT)
    registry, on_event = build_registry(sources(life, store))
    for story in stories:
        for event in story:
            store.apply(event)
            on_event(event)
    return list(registry.collect())


def series(found: Sequence[Metric]) -> set[tuple[str, ...]]:
    return {(sample.name, *map(str, sorted(sample.labels.items()))) for family in found for sample in family.samples}


def most(life: Life) -> int:
    return BUDGET.most(models=life.models, devices=life.devices, steps=len(life.step_names), dtypes=life.dtypes)


SIZES = [(1, 1, 1, 1), (3, 2, 2, 4), (2, 16, 1, 1), (20, 1, 3, 0), (4, 8, 2, 200)]


@pytest.mark.parametrize(("models", "devices", "dtypes", "waits"), SIZES)
def test_a_daemon_keeps_to_its_budget_whatever_has_happened(models: int, devices: int, dtypes: int, waits: int) -> None:
    life = Life(models=models, devices=devices, dtypes=dtypes, waits=waits)
    assert len(series(page(life, life.everything()))) <= most(life)
    # The last word in the budget: all parts of all steps are known, and a step runs that has none.
    between = [life.everything(), life.cycle(99, STARTED_AT), iter([next(step(STARTED_AT, "wait", 1, name="wait 0"))])]
    assert len(series(page(life, *between))) <= most(life)


def test_the_budget_is_not_a_loose_one() -> None:
    life = Life(models=4, devices=8, dtypes=2)
    assert len(series(page(life, life.everything()))) > 0.85 * most(life)


def accidents(life: Life) -> Iterator[Event]:
    """Fifty times: a worker dies, a step fails with another error, and everything is called by other numbers."""
    for number in range(50):
        reason = list(ExitReason)[number % len(ExitReason)]
        yield WorkerExited(at=STARTED_AT, pid=17, reason=reason, detail=f"killed {number}", expected=False)
        yield WorkerStarted(at=STARTED_AT, pid=1000 + number)
        yield from step(
            STARTED_AT,
            "load",
            1.0,
            name=f"load {life.model_names[0]}",
            model=life.model_names[0],
            outcome=Outcome.FAILED,
            error=f"/models/{number}: no such file",
            facts={"path": f"/models/{number}", f"fact {number}": number},
        )


def test_no_cycle_restart_error_or_process_adds_a_series() -> None:
    life = Life(models=2, devices=2)
    cycles = [life.cycle(number, STARTED_AT + 1000 * number) for number in range(100)]
    calm = series(page(life, life.everything()))
    assert series(page(life, accidents(life), *cycles, life.everything())) <= calm


def test_a_model_of_sixty_thousand_tensors_shows_as_many_series_as_a_small_one() -> None:
    """The names are hostile: nothing of them may come into a label."""

    def shown(tensors: int) -> set[tuple[str, ...]]:
        module = Bag(**{f'expert{number}"}} evil_{number}{{': parameter(1) for number in range(tensors)})
        held = replace(ResidentModel(IDENTITY, module).snapshot(), model=Life().model_names[0])
        assert held.tensors == tensors
        told = MemorySampled(at=STARTED_AT, devices=(), models=(held,))
        return series(page(Life(), Life().opening(STARTED_AT), iter([told])))

    assert shown(TENSORS) == shown(12)


def test_a_prometheus_above_others_is_told_to_take_what_the_fleet_dashboard_reads() -> None:
    text = TARGET.with_name("scale.md").read_text(encoding="utf-8")
    wanted = "|".join(metrics_read(read("fleet")))
    assert text.count(wanted) == 2, f"docs/scale.md should name, for federation and for remote write: {wanted}"

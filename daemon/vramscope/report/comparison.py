"""Two runs side by side, such as before and after an upgrade of torch or of a driver: what changed, versions first."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from vramscope.memory.ledger import CUDA_CONTEXT
from vramscope.report.row import ResultRow
from vramscope.report.run import ReadRun
from vramscope.report.run_charts import stacked_times
from vramscope.report.run_sections import both, run_facts
from vramscope.report.sheet import Report, Section, Sheet
from vramscope.report.sizes import UNKNOWN, seconds
from vramscope.report.story import RunStory, StepTimes
from vramscope.report.thinned import Spread

BEFORE, AFTER = "before", "after"
# What may differ between any two runs and says nothing about either.
_OWN = frozenset({"journal", "from", "to", "cycle"})
_VERSIONS = ("torch", "driver", "cuda", "transformers", "vramscope", "python", "kernel")
# A shorter difference than this is the clock's and the scheduler's.
LEAST_SECONDS = 0.005
LEAST_SHARE = 0.1
TIMES = (
    "Medians. Marked is what differs by a tenth or more and lies outside of the middle half of what the other run had; "
    "fewer than three runs of a step tell nothing."
)


@dataclass(frozen=True, kw_only=True)
class Change:
    """One figure of both runs; None is unknown. `is_changed` leaves out what is within the spread of the runs."""

    what: str
    before: str
    after: str
    difference: str
    is_changed: bool


def comparison(before: ReadRun, after: ReadRun) -> Report:
    """What changed from one run to the other."""
    facts = list(_facts(before, after))
    figures = list(_figures(before.story, after.story))
    times = list(_times(before.story, after.story))
    sections = (
        _summary(before, after, facts, figures, times),
        _section("Versions and surroundings", "", facts, texts=(0, 1, 2, 3)),
        _section("Memory, last complete cycle of each model", "", figures),
        _section(
            "Times",
            TIMES,
            times,
            charts=_chart(before.story, after.story),
        ),
    )
    names = (run.story.store.state.plan.name or "a run" for run in (before, after))
    shown = tuple(section for section in sections if section.sheets or section.notes)
    return Report(title=f"vramscope: {' compared with '.join(dict.fromkeys(names))}, before and after", sections=shown)


def changes_json(before: ReadRun, after: ReadRun) -> list[dict[str, object]]:
    """Every figure of both runs, changed or not."""
    rows = [*_facts(before, after), *_figures(before.story, after.story), *_times(before.story, after.story)]
    return [
        {"what": each.what, "before": each.before, "after": each.after, "changed": each.is_changed} for each in rows
    ]


def _summary(
    before: ReadRun, after: ReadRun, facts: list[Change], figures: list[Change], times: list[Change]
) -> Section:
    """What changed in sentences, versions first."""
    notes = [f"{each.what}: {each.before} → {each.after}" for each in facts if each.is_changed]
    notes = notes or ["no version, device, plan or setting changed"]
    is_told = all(any(step.seconds.middle for step in run.story.steps.values()) for run in (before, after))
    of_times = "no time changed by more than chance may" if is_told else "too few runs of any step to compare times"
    for rows, nothing in ((figures, "no figure of memory changed"), (times, of_times)):
        told = [f"{each.what}: {each.before} → {each.after}, {each.difference}" for each in rows if each.is_changed]
        notes += told or ([nothing] if rows else [])
    notes += [f"{name}: {note}" for name, run in ((BEFORE, before), (AFTER, after)) for note in run.notes]
    runs = Sheet(
        headings=("", "journal", "from", "to"),
        rows=tuple(
            (name, facts["journal"], facts["from"], facts["to"])
            for name, facts in ((BEFORE, run_facts(before)), (AFTER, run_facts(after)))
        ),
        texts=(0, 1, 2, 3),
    )
    return Section(title="What changed", sheets=(runs,), notes=tuple(notes))


def _section(
    title: str, lead: str, rows: list[Change], texts: tuple[int, ...] = (0,), charts: tuple[str, ...] = ()
) -> Section:
    sheet = Sheet(
        headings=("", BEFORE, AFTER, "change"),
        rows=tuple((each.what, each.before, each.after, each.difference) for each in rows),
        texts=texts,
        marked=frozenset(number for number, each in enumerate(rows) if each.is_changed),
    )
    return Section(title=title, lead=lead, sheets=(sheet,) if rows else (), charts=charts)


def _facts(before: ReadRun, after: ReadRun) -> Iterator[Change]:
    """Versions first, then devices, backend, plan and how the cycles went."""
    first, second = run_facts(before), run_facts(after)
    names = [name for name in (*_VERSIONS, *first, *second) if name not in _OWN]
    for name in dict.fromkeys(names):
        old, new = first.get(name, ""), second.get(name, "")
        if old or new:
            changed = old != new
            yield Change(
                what=name,
                before=old or UNKNOWN,
                after=new or UNKNOWN,
                difference="changed" if changed else "same",
                is_changed=changed,
            )


def _figures(before: RunStory, after: RunStory) -> Iterator[Change]:
    first, second = _last_rows(before), _last_rows(after)
    for model in dict.fromkeys((*first, *second)):
        old, new = _bytes_of(first.get(model)), _bytes_of(second.get(model))
        for what in dict.fromkeys((*old, *new)):
            yield _bytes_change(f"{model}, {what}", old.get(what), new.get(what))
    for device in dict.fromkeys((*before.devices, *after.devices)):
        for quantity in ("allocated", "reserved", "used"):
            peaks = [
                story.peaks[device].nbytes.get(quantity) if device in story.peaks else None for story in (before, after)
            ]
            if any(peak is not None for peak in peaks):
                yield _bytes_change(f"{device}, most {quantity}", *peaks)
    errors = [
        max((each.largest_error_bytes for each in story.foreseen.values()), default=None) for story in (before, after)
    ]
    if any(error is not None for error in errors):
        yield _bytes_change("largest error of the forecast", *errors)


def _last_rows(story: RunStory) -> dict[str, ResultRow]:
    """For each model its last row, complete ones preferred."""
    rows = {row.model: row for row in story.results.rows()}
    return rows | {row.model: row for row in story.results.rows() if row.after_unload and row.outcome}


def _bytes_of(row: ResultRow | None) -> Mapping[str, int | None]:
    if row is None:
        return {}
    station = row.on_device
    told = {
        "parameters x size of their type": row.theoretical_bytes,
        "files": row.file_bytes,
        "allocated on device": station.allocated_bytes if station else None,
        "reserved on device": station.reserved_bytes if station else None,
        "driver, this process": row.device_used_bytes,
        "CUDA context": row.ledger.get(CUDA_CONTEXT) if row.ledger else None,
        "worker RAM after load": row.resident_bytes,
        "left behind on the device": row.left_bytes(row.residue),
    }
    return {name: nbytes for name, nbytes in told.items() if nbytes is not None}


def _bytes_change(what: str, old: int | None, new: int | None) -> Change:
    if old is None or new is None:
        return Change(what=what, before=both(old), after=both(new), difference=UNKNOWN, is_changed=old != new)
    difference = new - old
    # RAM of a process is never the same twice; a MiB in a hundred says nothing.
    changed = abs(difference) > max(old, new) / 50 if what.endswith("RAM after load") else difference != 0
    share = f", {100 * difference / old:+.1f} %" if old and difference else ""
    text = "same" if not difference else f"{difference / (1 << 20):+,.1f} MiB{share} ({difference:+,})"
    return Change(what=what, before=both(old), after=both(new), difference=text, is_changed=changed)


def _times(before: RunStory, after: RunStory) -> Iterator[Change]:
    for step in dict.fromkeys((*before.steps, *after.steps)):
        old, new = before.steps.get(step), after.steps.get(step)
        kind = (old or new or StepTimes("", "", "")).kind
        if kind == "wait":
            continue  # the plan says how long
        yield _time_change(step, old, new, None)
        for phase in dict.fromkeys((*(old.phases if old else ()), *(new.phases if new else ()))):
            yield _time_change(f"{step}, {phase}", old, new, phase)


def _time_change(what: str, old: StepTimes | None, new: StepTimes | None, phase: str | None) -> Change:
    first, second = (
        None if each is None else each.seconds if phase is None else each.phases.get(phase) for each in (old, new)
    )
    told = (first.median if first else None, second.median if second else None)
    if first is None or second is None or told[0] is None or told[1] is None:
        return Change(
            what=what,
            before=seconds(told[0]),
            after=seconds(told[1]),
            difference=UNKNOWN,
            is_changed=told[0] != told[1],
        )
    difference = told[1] - told[0]
    share = f"{100 * difference / told[0]:+.0f} %".replace("+0 %", "0 %") if told[0] > 0 else UNKNOWN
    is_long = abs(difference) >= max(LEAST_SECONDS, told[0] * LEAST_SHARE)
    return Change(
        what=what,
        before=seconds(told[0]),
        after=seconds(told[1]),
        difference=share,
        is_changed=is_long and _is_outside(told[1], first) and _is_outside(told[0], second),
    )


def _is_outside(value: float, spread: Spread) -> bool:
    """Whether a median is none that the other run would have had by chance."""
    middle = spread.middle
    return middle is not None and not middle[0] <= value <= middle[1]


def _chart(before: RunStory, after: RunStory) -> tuple[str, ...]:
    bars = []
    for step in dict.fromkeys((*before.steps, *after.steps)):
        for name, story in ((BEFORE, before), (AFTER, after)):
            times = story.steps.get(step)
            if times is not None and times.phases:
                phases = {phase: spread.median or 0.0 for phase, spread in times.phases.items()}
                bars.append((f"{step}, {name}", phases))
    return (stacked_times(bars),) if bars else ()

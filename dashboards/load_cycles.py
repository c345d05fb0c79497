"""Load cycles: what runs now, where the time goes, how fast bytes travel, and what fails."""

from collections.abc import Sequence

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from dashboards import _annotations, _variables
from dashboards._looks import (
    BAD,
    CALM_ONLY,
    GOOD,
    KIND_COLOURS,
    READ,
    UP,
    WARNING,
    ZERO_IS_GOOD,
    fixed,
    shades_of,
    words,
)
from dashboards._page import Line, Page, Section
from dashboards._panels import areas, bars, gauges, lines, name, number, timeline
from dashboards._queries import growth, in_range, now, of, over_time, per_second
from dashboards._tables import Column, Key, grid

COPYING = '=~"fetch|load|move"'
OUTCOMES = {"succeeded": GOOD, "failed": BAD, "cancelled": WARNING}


def _sections() -> Sequence[Section]:
    now_running = [(8, _running()), (4, _progress()), (6, _models()), (3, _plan()), (3, _files())]
    counts = [
        (6, _cycles()),
        (4, _last_cycle()),
        (4, _last_success()),
        (4, _failed_steps()),
        (3, _restarts()),
        (3, _worker()),
    ]
    return [
        Section(title="Now", lines=[Line(height=3, panels=now_running), Line(height=3, panels=counts)]),
        Section(title="Timeline", lines=[Line(height=8, panels=[(24, _timeline())])]),
        Section(
            title="Loads (files to RAM) and moves (RAM to VRAM, and back)",
            lines=[
                Line(height=9, panels=[(12, _last_parts()), (12, _parts_over_time())]),
                Line(height=8, panels=[(8, _load_speed()), (8, _move_speed()), (8, _moved())]),
            ],
        ),
        Section(
            title="Outcomes and durations",
            lines=[
                Line(height=8, panels=[(12, _outcomes()), (12, _failures())]),
                Line(height=8, panels=[(12, _step_durations()), (12, _kind_durations())]),
            ],
        ),
    ]


def _running() -> Builder[Panel]:
    return name(
        "Running now",
        "The step of the plan that runs at this moment. A load reads a model's files into system RAM; a move copies it "
        "from RAM to a GPU's memory (VRAM) or back. A step that is shorter than the scrape interval is rarely seen.",
        now(of("vramscope_step_running", "model"), "{{step}}"),
    ).no_value("between two steps")


def _progress() -> Builder[Panel]:
    return gauges(
        "Progress of the running step",
        "How much of its bytes the running step's current part has done. Empty while nothing is read or copied.",
        "percentunit",
        now(of("vramscope_step_progress_ratio", "model"), "{{step}}"),
    ).max(1)


def _models() -> Builder[Panel]:
    return name(
        "Where the models are",
        "absent: not loaded. host: in system RAM. device: in VRAM. mixed: a part in each. failed: its step broke off. "
        "Loading and moving are two steps: a model that is only loaded takes no VRAM yet.",
        now(of("vramscope_model_state", "model") + " == 1", "{{model}}: {{state}}"),
    )


def _plan() -> Builder[Panel]:
    return name("Plan", "The plan file's name for what this daemon runs.", now(of("vramscope_plan_info"), "{{plan}}"))


def _files() -> Builder[Panel]:
    return number(
        "Files in force",
        "Whether the plan file, and the web configuration where there is one, were good when they were last read. "
        "Where one was not, what it said before goes on.",
        "none",
        now(of("vramscope_plan_last_reload_success"), "plan"),
        now(of("vramscope_web_config_last_reload_success"), "web"),
    ).mappings(words(READ))


def _cycles() -> Builder[Panel]:
    counted = f"round(sum by (outcome) ({in_range(of('vramscope_cycles_total'))}))"
    panel = number(
        "Cycles in this time range",
        "A cycle is one pass through all steps of the plan. It fails when one of its steps fails; the next cycle "
        "starts from a clean state. Cancelled: stopped by somebody.",
        "none",
        now(counted, "{{outcome}}"),
    )
    for outcome, colour in OUTCOMES.items():
        panel.override_by_name(outcome, fixed(colour))
    return panel


def _last_cycle() -> Builder[Panel]:
    return number(
        "Last cycle took",
        "How long the last pass through the plan took, whether it succeeded or not.",
        "s",
        now(of("vramscope_cycle_last_duration_seconds")),
    ).decimals(1)


def _last_success() -> Builder[Panel]:
    return (
        number(
            "Last success was",
            "How long ago a cycle last succeeded. Much more than a few cycles' time means that the plan is stuck or "
            "failing.",
            "s",
            now(f"time() - {of('vramscope_cycle_last_success_timestamp_seconds')}"),
        )
        .decimals(0)
        .no_value("never")
    )


def _failed_steps() -> Builder[Panel]:
    counter = of("vramscope_step_runs_total", outcome='=~"failed|timed_out"')
    return number(
        "Failed steps in range",
        "Steps that failed or ran out of time. The daemon's page and log tell what each one's error was.",
        "none",
        now(f"round(sum({in_range(counter)}))"),
        levels=ZERO_IS_GOOD,
    )


def _restarts() -> Builder[Panel]:
    return number(
        "Worker restarts",
        "How often, in this time range, the worker process ended unasked: a crash, a signal, or the kernel for want of "
        "memory. A restart that the plan asks for does not count.",
        "none",
        now(f"round(sum({in_range(of('vramscope_worker_restarts_total'))}))"),
        levels=ZERO_IS_GOOD,
    )


def _worker() -> Builder[Panel]:
    return number(
        "Worker",
        "Whether the process is ready that owns PyTorch and the GPU. The daemon that Prometheus asks outlives it.",
        "none",
        now(of("vramscope_worker_up")),
    ).mappings(words(UP))


def _timeline() -> Builder[Panel]:
    return timeline(
        "Steps",
        "A row for each step of the plan, filled while it runs: loads blue, moves green, pauses grey, all others "
        "pink. Prometheus looks once per scrape, so a step that is shorter may be missing here; its duration is "
        "below.",
        *(
            over_time(of("vramscope_step_running", "model", kind=kinds), "{{step}}", colour)
            for kinds, colour in KIND_COLOURS
        ),
    )


def _last_parts() -> Builder[Panel]:
    seconds = of("vramscope_phase_last_duration_seconds", "model", kind=COPYING)
    handled = of("vramscope_phase_bytes", "model", kind=COPYING)
    by = "sum by (model, kind, phase)"
    return grid(
        "Parts of each model's last load and move",
        "Parts never overlap, so they add up to the step. resolve: find the files. import: load the library's code, "
        "once per worker. build: make the empty modules. read: from disk. convert: to the plan's number type. "
        "context: start CUDA, once per worker. copy: to or from the device. synchronize: wait until the device is "
        "done. Downloads are a kind of their own (fetch) and never count as loading.",
        [
            Key(label="model", title="Model", width=110),
            Key(label="kind", title="Kind", width=70),
            Key(label="phase", title="Part", width=100),
        ],
        [
            Column(title="Took", expr=f"{by} ({seconds})", unit="s", bar=True, levels=CALM_ONLY, decimals=2),
            Column(title="Bytes", width=90, expr=f"{by} ({handled})", unit="bytes"),
            Column(title="Speed", width=100, expr=f"{by} ({handled}) / {by} ({seconds} > 0)", unit="binBps"),
        ],
    )


def _parts_over_time() -> Builder[Panel]:
    seconds = of("vramscope_phase_last_duration_seconds", "model", kind=COPYING)
    return areas(
        "Parts of loads and moves over time",
        "The same parts, each as its last run took. A part that grows is where a slow load comes from: read is the "
        "disk, convert the processor, copy the bus (PCIe) between RAM and VRAM.",
        "s",
        over_time(seconds, "{{model}} {{kind}}: {{phase}}"),
    )


def _load_speed() -> Builder[Panel]:
    parts = {"kind": '="load"', "phase": '=~"read|convert"'}
    seconds = of("vramscope_phase_last_duration_seconds", "model", **parts)
    handled = of("vramscope_phase_bytes", "model", **parts)
    return lines(
        "Load throughput",
        "Bytes a second of the last load: read (from disk, or from the page cache, which is far faster) and convert "
        "(to the plan's number type). Loading ends in RAM; the bus to the GPU has no part in it.",
        "binBps",
        over_time(f"{handled} / ({seconds} > 0)", "{{model}}: {{phase}}"),
    ).min(0)


def _move_speed() -> Builder[Panel]:
    return lines(
        "Move bandwidth",
        "Bytes a second of each model's last copy between RAM and VRAM, by direction. to_device is RAM to VRAM. A PCIe "
        "4.0 x16 slot does about 25 GB/s with pinned memory, and a fraction of that without.",
        "binBps",
        over_time(of("vramscope_move_last_bytes_per_second", "model", "device"), "{{model}} {{device}} {{direction}}"),
    ).min(0)


def _moved() -> Builder[Panel]:
    moved, seconds = (of(name, "device") for name in ("vramscope_moved_bytes_total", "vramscope_move_seconds_total"))
    return lines(
        "Mean bandwidth while moving",
        "All bytes moved by the time that moving them took, over the last scrapes: what the bus gave on average, by "
        "direction. Gaps are times without moves.",
        "binBps",
        over_time(f"{per_second(moved)} / ({per_second(seconds)} > 0)", "{{device}} {{direction}}"),
    ).min(0)


def _outcomes() -> Builder[Panel]:
    panel = bars(
        "Cycles by outcome",
        "How many passes through the plan ended around each moment, and how.",
        "none",
        over_time(f"sum by (outcome) ({growth(of('vramscope_cycles_total'))})", "{{outcome}}"),
    )
    for outcome, colour in OUTCOMES.items():
        panel.override_by_name(outcome, fixed(colour))
    return panel.decimals(1)


def _failures() -> Builder[Panel]:
    counter = of("vramscope_step_runs_total", outcome='=~"failed|timed_out"')
    panel = bars(
        "Steps that failed, by kind",
        "Which kinds of steps fail. expect: a measurement was not within the plan's bounds. load and move: mostly no "
        "room.",
        "none",
        over_time(f"sum by (kind, outcome) ({growth(counter)}) > 0", "{{kind}} {{outcome}}"),
    )
    return panel.decimals(1).color_scheme(shades_of(BAD)).no_value("no failure in this time range")


def _step_durations() -> Builder[Panel]:
    return lines(
        "Last duration of each step",
        "How long each step of the plan took when it last ran.",
        "s",
        over_time(of("vramscope_step_last_duration_seconds", "model"), "{{step}}"),
    ).min(0)


def _kind_durations() -> Builder[Panel]:
    buckets = per_second(of("vramscope_step_duration_seconds_bucket"))
    return lines(
        "Nine of ten steps were faster than this",
        "The 90th percentile of durations by kind of step, from a histogram: exact only within its buckets.",
        "s",
        over_time(f"histogram_quantile(0.9, sum by (kind, le) ({buckets})) > 0", "{{kind}}"),
    ).min(0)


DASHBOARD = Page(
    uid="vramscope-load-cycles",
    title="vramscope / Load cycles",
    text="What the plan does now, where the time of loads and moves goes, how fast bytes travel, and what fails.",
    span="30m",
    refresh="10s",
    variables=_variables.one_instance,
    annotations=_annotations.happenings,
    sections=_sections,
)

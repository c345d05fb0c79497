"""VRAM ledger: who owns each byte of each device, how the numbers relate, and what unloads left behind."""

from collections.abc import Sequence

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from dashboards import _annotations, _host, _residue, _variables
from dashboards._limits import CRITICAL_RATIO, WARNING_RATIO, limit_bytes
from dashboards._looks import (
    ALLOCATED,
    CRITICAL,
    FILLING,
    HIGH_WATER,
    OWNER_COLOURS,
    PROCESS,
    RESERVED,
    TOTAL,
    UP,
    USED,
    WARNING,
    ZERO_IS_GOOD,
    line_in,
)
from dashboards._page import Line, Page, Section
from dashboards._panels import areas, bars, gauges, lines, number
from dashboards._queries import growth, mark, now, of, over_time
from dashboards._tables import Column, Key, grid
from vramscope.memory.owners import OWNERS


def _sections() -> Sequence[Section]:
    return [
        Section(
            title="Now", lines=[Line(height=5, panels=[(6, _used()), (12, _devices()), (3, _off()), (3, _left())])]
        ),
        Section(
            title="$device",
            repeat="device",
            lines=[
                Line(height=10, panels=[(13, _owners()), (11, _levels())]),
                Line(height=7, panels=[(12, _forecast()), (6, _forecast_error()), (6, _allocator())]),
            ],
        ),
        Section(title="Residue: what models left behind after their unload", lines=_residue.lines()),
        Section(title="Driver and system RAM", lines=_host.lines()),
    ]


def _used() -> Builder[Panel]:
    used, total = (of(f"vramscope_nvml_{what}_bytes", "device") for what in ("used", "total"))
    return (
        gauges(
            "VRAM in use",
            "How much of each device all processes use together, as the driver (NVML) says. Colours: 85 and 95 %; "
            "the alerts' own thresholds are the dashed lines below.",
            "percentunit",
            now(f"{used} / {total}", "{{device}}"),
            levels=FILLING,
        )
        .max(1)
        .decimals(1)
    )


def _devices() -> Builder[Panel]:
    def column(title: str, metric: str) -> Column:
        return Column(title=title, expr=f"max by (device) ({of(metric, 'device')})", unit="bytes", width=82)

    return grid(
        "Devices",
        "Why the columns grow to the right: tensors are allocated; PyTorch reserves whole blocks for them and keeps "
        "what is free again (reserved); the worker's process also holds its CUDA context (process); other processes "
        "and the driver come on top (used). High water is the most that was used within the last 60 s, looked at 10 "
        "times a second.",
        [Key(label="device", title="Device", width=80)],
        [
            column("Allocated", "vramscope_torch_allocated_bytes"),
            column("Reserved", "vramscope_torch_reserved_bytes"),
            column("Process", "vramscope_nvml_process_used_bytes"),
            column("Used", "vramscope_nvml_used_bytes"),
            column("High water", "vramscope_nvml_used_high_water_bytes"),
            column("Total", "vramscope_nvml_total_bytes"),
            Column(
                title="NVML",
                expr=f"min by (device) ({of('vramscope_nvml_up', 'device')})",
                unit="none",
                texts=UP,
            ),
        ],
    )


def _off() -> Builder[Panel]:
    return number(
        "Forecast off by",
        "The largest difference between what the forecast said and what PyTorch held after the latest step. 0 B is "
        "right to the byte.",
        "bytes",
        now(f"max(abs({of('vramscope_forecast_error_bytes', 'device')}))"),
        levels=ZERO_IS_GOOD,
    )


def _left() -> Builder[Panel]:
    return number(
        "Left in VRAM",
        "What the models' last unloads did not give back on the devices. 0 B is the proof that all came back.",
        "bytes",
        now(f"sum({of('vramscope_residue_bytes', 'model', where=_residue.NOT_HOST)})"),
        levels=ZERO_IS_GOOD,
    )


def _owners() -> Builder[Panel]:
    owned = [
        over_time(
            of("vramscope_ledger_bytes", "device", owner=f'="{each.owner}"'), each.name, OWNER_COLOURS[each.owner]
        )
        for each in OWNERS
    ]
    meanings = " ".join(f"{each.name}: {each.meaning}." for each in OWNERS)
    return areas(
        "$device: who owns the VRAM",
        "Every byte has exactly one owner, so the areas always add up to the device's total. " + meanings,
        "bytes",
        *owned,
        mark(limit_bytes(WARNING_RATIO), "warning", WARNING),
        mark(limit_bytes(CRITICAL_RATIO), "critical", CRITICAL),
    )


def _levels() -> Builder[Panel]:
    parameters = of("vramscope_ledger_bytes", "device", owner='="parameters"')
    return lines(
        "$device: parameters < allocated < reserved < process < used",
        "A number of parameters is a count, not a size: times the bytes of each (4 in float32, 2 in float16) it gives "
        "the lowest line. PyTorch rounds each tensor up (allocated), takes memory from the driver in large blocks and "
        "keeps it (reserved); CUDA itself needs some hundred MiB (process); others use the device, too (used, which "
        "NVML and nvidia-smi show). After an unload allocated falls, and reserved only after a release.",
        "bytes",
        over_time(parameters, "parameters", OWNER_COLOURS["parameters"]),
        over_time(of("vramscope_torch_allocated_bytes", "device"), "allocated", ALLOCATED),
        over_time(of("vramscope_torch_reserved_bytes", "device"), "reserved", RESERVED),
        over_time(of("vramscope_nvml_process_used_bytes", "device"), "process", PROCESS),
        over_time(of("vramscope_nvml_used_bytes", "device"), "used", USED),
        mark(of("vramscope_nvml_used_high_water_bytes", "device"), "high water", HIGH_WATER),
        mark(of("vramscope_nvml_total_bytes", "device"), "total", TOTAL),
    ).min(0)


def _forecast() -> Builder[Panel]:
    return lines(
        "$device: forecast and measured",
        "What the forecast says that PyTorch will hold after the running step (dashed), and what it holds. The dashed "
        "lines go ahead: they jump when a step begins, and the measurement follows.",
        "bytes",
        over_time(of("vramscope_torch_allocated_bytes", "device"), "allocated", ALLOCATED),
        over_time(of("vramscope_torch_reserved_bytes", "device"), "reserved", RESERVED),
        mark(of("vramscope_forecast_allocated_bytes", "device"), "allocated, forecast", ALLOCATED),
        mark(of("vramscope_forecast_reserved_bytes", "device"), "reserved, forecast", RESERVED),
    ).min(0)


def _forecast_error() -> Builder[Panel]:
    return lines(
        "$device: measured minus forecast",
        "Taken after each step. 0 is right to the byte; a step down or up tells which step held less or more than it "
        "should.",
        "bytes",
        over_time(of("vramscope_forecast_error_bytes", "device", quantity='="allocated"'), "allocated", ALLOCATED),
        over_time(of("vramscope_forecast_error_bytes", "device", quantity='="reserved"'), "reserved", RESERVED),
    )


def _allocator() -> Builder[Panel]:
    retries, ooms = (of(f"vramscope_torch_{what}_total", "device") for what in ("alloc_retries", "ooms"))
    panel = bars(
        "$device: allocator under pressure",
        "How often PyTorch had to empty its cache to find room (retries), and how often it found none (out of "
        "memory). The line is what it cannot give back because a tensor lives in the same block (fragmentation).",
        "none",
        over_time(growth(retries), "retries", WARNING),
        over_time(growth(ooms), "out of memory", CRITICAL),
        over_time(of("vramscope_torch_inactive_split_bytes", "device"), "fragmented", TOTAL),
    )
    return panel.override_by_query("C", line_in("bytes"))


DASHBOARD = Page(
    uid="vramscope-vram-ledger",
    title="vramscope / VRAM ledger",
    text="Who owns each byte of VRAM, how allocated, reserved and used relate, and whether unloading gives it back.",
    span="30m",
    refresh="10s",
    variables=_variables.one_instance,
    annotations=_annotations.happenings,
    sections=_sections,
)

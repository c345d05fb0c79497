"""The panels about what models left behind after their unload."""

from collections.abc import Sequence

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from dashboards import _panels
from dashboards._page import Line
from dashboards._queries import of, over_time

NOT_HOST = '!="host"'


def lines() -> Sequence[Line]:
    """Their place on a dashboard."""
    return [
        Line(height=8, panels=[(12, _left()), (12, _growth())]),
        Line(height=8, panels=[(10, _device_causes()), (7, _host_causes()), (7, _tensors())]),
    ]


def _left() -> Builder[Panel]:
    return _panels.lines(
        "Left behind",
        "What the worker holds after a model's last unload beyond what it held before the load, by place: a device, "
        "or host (system RAM). Other models' tensors are not counted. On a device 0 is normal; RAM keeps some of what "
        "Python and its libraries once used.",
        "bytes",
        over_time(of("vramscope_residue_bytes", "model"), "{{model}} {{where}}"),
    )


def _growth() -> Builder[Panel]:
    return _panels.lines(
        "Growth from one unload to the next",
        "The slope over the last 20 unloads. A single residue may be a cache that fills once; a slope that stays "
        "above 0 is a leak: bytes by slope tells after how many cycles the device is full.",
        "bytes",
        over_time(of("vramscope_residue_growth_bytes", "model"), "{{model}} {{where}}"),
    ).axis_soft_min(0)


def _device_causes() -> Builder[Panel]:
    return _causes(
        "Why, in VRAM",
        "live_tensors: somebody still holds tensors. allocator_cache: PyTorch keeps free blocks, until a release. "
        "context_growth: CUDA took more for its code and state, until the worker restarts. other_processes and "
        "outside_allocator grew meanwhile and are no part of the residue.",
        NOT_HOST,
    )


def _host_causes() -> Builder[Panel]:
    return _causes(
        "Why, in RAM",
        "live_tensors: somebody still holds tensors. process: what Python, its libraries and the C library's cache of "
        "freed memory hold, until the worker restarts.",
        '="host"',
    )


def _causes(title: str, text: str, where: str) -> Builder[Panel]:
    causes = of("vramscope_residue_cause_bytes", "model", where=where)
    return _panels.areas(title, text, "bytes", over_time(f"{causes} > 0", "{{model}} {{where}}: {{cause}}")).no_value(
        "nothing was left"
    )


def _tensors() -> Builder[Panel]:
    return _panels.areas(
        "Tensors left in VRAM, by size",
        "Tensors that outlived their model, by the size of a single one: the size often tells what it was.",
        "bytes",
        over_time(of("vramscope_residue_live_tensor_bytes", "model", where=NOT_HOST), "{{model}} {{where}}: {{size}}"),
    ).no_value("no tensor was left")

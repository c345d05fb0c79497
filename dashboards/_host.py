"""The panels about system RAM and about the driver's answers."""

from collections.abc import Sequence

from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.dashboard import Panel

from dashboards import _panels
from dashboards._looks import CRITICAL, GOOD, HIGH_WATER, TOTAL
from dashboards._page import Line
from dashboards._queries import mark, now, of, over_time


def lines() -> Sequence[Line]:
    """Their place on a dashboard."""
    return [Line(height=8, panels=[(6, _ram()), (6, _worker()), (6, _peaks()), (6, _answers())])]


def _ram() -> Builder[Panel]:
    return _panels.lines(
        "System RAM",
        "limit: the most that vramscope may use, which is the host's RAM or its container's limit. left: what is free "
        "of it; page cache counts as free. When it runs out the kernel kills a process, mostly the worker.",
        "bytes",
        mark(of("vramscope_host_memory_limit_bytes"), "limit", TOTAL),
        over_time(of("vramscope_host_memory_available_bytes"), "left", GOOD),
    ).min(0)


def _worker() -> Builder[Panel]:
    return _panels.areas(
        "RAM of the worker",
        "anonymous: what the process itself holds, such as a loaded model. file: mapped files, such as libraries, "
        "which the kernel can drop. swap: what the kernel has moved to disk. The dashed line is the peak of the "
        "running or last step.",
        "bytes",
        over_time(of("vramscope_worker_resident_bytes"), "{{kind}}"),
        mark(of("vramscope_worker_resident_peak_bytes"), "peak of the step", HIGH_WATER),
    )


def _peaks() -> Builder[Panel]:
    return _panels.gauges(
        "Peak RAM of last loads",
        "The most that the worker held at once during the load. Far more than the model's bytes means that it was "
        "held twice.",
        "bytes",
        now(of("vramscope_worker_load_peak_bytes", "model"), "{{model}}"),
    )


def _answers() -> Builder[Panel]:
    return _panels.lines(
        "Driver's answer age, OOM kills",
        "How long ago NVML last answered for a device: a hung driver does not make the scrape wait, its numbers grow "
        "old. Red: processes that the kernel killed for want of memory.",
        "s",
        over_time(f"time() - {of('vramscope_nvml_last_answer_timestamp_seconds', 'device')}", "{{device}}"),
        over_time(f"increase({of('vramscope_host_oom_kills_total')}[$__rate_interval])", "OOM kills", CRITICAL),
    ).min(0)

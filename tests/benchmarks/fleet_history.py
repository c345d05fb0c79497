"""What a Prometheus would have kept of a fleet: samples of the past, made into blocks by promtool."""

import json
import math
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.benchmarks.fleet_pages import Instance

SCRAPE_SECONDS = 15
HOUR = 3600
HISTORY_SECONDS = 120  # how often the rules about a day's history are evaluated
GROWTH = "vramscope_residue_growth_bytes"
RATIO = "instance_device:vramscope_vram_used:ratio"
LOADS = "instance_model:vramscope_load_seconds"


def line(name: str, labels: Mapping[str, str], value: float, at: int) -> str:
    inside = ",".join(f'{key}="{each}"' for key, each in labels.items())
    return f"{name}{{{inside}}} {value!r} {at}\n"


def graphs(instances: Sequence[Instance], until: int) -> Iterator[str]:
    """Three hours of what the Fleet dashboard draws over time."""
    for each in instances:
        who = {"instance": each.name, "job": "vramscope"}
        for at in range(until - 3 * HOUR, until, SCRAPE_SECONDS):
            for device in each.life.device_names:
                where = {"instance": each.name, "device": device}
                yield line(RATIO, {**who, "device": device}, each.share(at), at)
                yield line("instance_device:vramscope_vram_used_ratio:warning", where, 0.85, at)
                yield line("instance_device:vramscope_vram_used_ratio:critical", where, 0.95, at)
            done = (at - until + 4 * HOUR) // 60
            failed = done // 2 if each.fails else 0
            yield line("vramscope_cycles_total", {**who, "outcome": "failed"}, failed, at)
            yield line("vramscope_cycles_total", {**who, "outcome": "succeeded"}, done - failed, at)
            for model in each.life.model_names:
                for where in (*each.life.device_names, "host"):
                    yield line(GROWTH, {**who, "model": model, "where": where}, (64 << 20) * each.leaks, at)


def loads(instances: Sequence[Instance], until: int) -> Iterator[str]:
    """A day of load times, and three hours of their median."""
    for each in instances:
        for model in each.life.model_names:
            labels = {"instance": each.name, "job": "vramscope", "kind": "load", "model": model}
            for at in range(until - 24 * HOUR, until, HISTORY_SECONDS):
                yield line(f"{LOADS}:sum", labels, 6 + 0.5 * math.sin(at / 700 + each.number), at)
                if at >= until - 3 * HOUR:
                    yield line(f"{LOADS}:median1d", labels, 6.0, at)


def pages(instance: Instance, until: int, hours: int) -> Iterator[str]:
    """Every sample of one daemon's pages, scrape by scrape."""
    for at in range(until - hours * HOUR, until, SCRAPE_SECONDS):
        for family in instance.collect(at):
            for sample in family.samples:
                labels = {"instance": instance.name, "job": "vramscope", **sample.labels}
                yield line(sample.name, labels, float(sample.value), at)


def write_blocks(lines: Iterator[str], directory: Path, scratch: Path) -> None:
    """Add blocks of these samples to a Prometheus' data; raises CalledProcessError with promtool's own words."""
    scratch.write_text("".join([*lines, "# EOF\n"]))
    command = ["promtool", "tsdb", "create-blocks-from", "--quiet", "openmetrics", str(scratch), str(directory)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    scratch.unlink()


def bytes_a_sample(directory: Path) -> tuple[float, int]:
    """What a sample takes on disk in these blocks, chunks and index together; and how many samples there are."""
    samples = sum(json.loads(path.read_text())["stats"]["numSamples"] for path in directory.glob("*/meta.json"))
    nbytes = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
    return nbytes / samples, samples

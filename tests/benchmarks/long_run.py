"""Many cycles in one daemon: `python -m tests.benchmarks.long_run` (in the repository's root).

First several models take turns on two devices, while every page of metrics and, inside the daemon, every state is
checked: each ledger adds up, no collector fails, nothing is left on a device after unload and release, and the number
of series stays the same. Then one tiny model is loaded a thousand times, and neither process may grow.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.audited_daemon import AUDIT
from tests.benchmarks.figures import say, write_json
from tests.daemon import Daemon

from vramscope.memory.resident import read_resident
from vramscope.settings import default_cache

HERE = Path(__file__).parent
DEVICES = ("cuda:0", "cuda:1")
SIMULATED = ("--device", "simulated", "--capacity", "cuda:0=12GiB", "--capacity", "cuda:1=8GiB", "--bandwidth", "0")
INTERVAL_SECONDS = 0.05
CYCLE_SECONDS = 60.0
# Until a trend is told, five unloads have to pass; then every series is there.
CYCLES_UNTIL_STEADY = 7
FAULTS_KEPT = 20
SUPERVISOR_GROWTH_BYTES = 2 << 20
WORKER_GROWTH_BYTES = 32 << 20
WEIGHED = 200  # how often the processes are looked at
SETTLED = "settled"
SEVERAL = """
version: 1
name: several-models
models:
  first: {source: "synthetic:tiny", dtype: float32}
  second: {source: "synthetic:tiny", dtype: float16}
  third: {source: "synthetic:THIRD", dtype: bfloat16}
repeat: CYCLES
steps:
  - tokenize: {model: first, text: "where did every byte go?"}
  - load: first
  - move: first
  - load: {model: second, to: cuda:0}
  - load: third
  - move: {model: third, to: cuda:1}
  - move: {model: first, to: cpu}
  - unload: second
  - unload: first
  - move: {model: third, to: cuda:0}
  - unload: third
  - release
  - {wait: 100ms, name: settled}
"""
ONE = """
version: 1
name: one-model
models:
  tiny: {source: "synthetic:tiny"}
repeat: CYCLES
steps:
  - load: tiny
  - move: tiny
  - move: {model: tiny, to: cpu}
  - unload: tiny
  - release
  - {wait: 60ms, name: settled}
"""


class AuditedDaemon(Daemon):
    program = (str(HERE / "audited_daemon.py"),)

    def audit(self) -> dict[str, Any]:
        """What was found inside, once the daemon has ended."""
        lines = [line for line in self.lines if line.startswith(AUDIT)]
        return json.loads(lines[-1].removeprefix(AUDIT)) if lines else {"faults": ["the daemon told no audit"]}


@dataclass(frozen=True)
class Size:
    """Memory that the two processes hold of their own, when so many cycles were done."""

    cycles: int
    supervisor_bytes: int
    worker_bytes: int


@dataclass
class Watch:
    """What the pages of a daemon showed; `problems` is empty where all is well."""

    scrapes: int = 0
    settled: int = 0
    longest_seconds: float = 0.0
    series: Counter[int] = field(default_factory=Counter)
    sizes: list[Size] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def check(self, samples: Mapping[str, Mapping[tuple[tuple[str, str], ...], float]], cycles: float) -> None:
        """Look at one page."""
        self.scrapes += 1
        self._check_ledgers(samples)
        for labels, value in samples["vramscope_collector_success"].items():
            if value != 1:
                self.note(f"cycle {cycles:g}: {dict(labels)['collector']} failed")
        running = {dict(labels)["step"] for labels in samples.get("vramscope_step_running", {})}
        if running != {SETTLED}:
            return
        self.settled += 1
        for labels, value in samples.get("vramscope_residue_bytes", {}).items():
            if dict(labels)["where"] in DEVICES and value:
                self.note(f"cycle {cycles:g}: {dict(labels)} left {value:g} bytes")
        if cycles >= CYCLES_UNTIL_STEADY:
            self.series[sum(map(len, samples.values()))] += 1

    def _check_ledgers(self, samples: Mapping[str, Mapping[tuple[tuple[str, str], ...], float]]) -> None:
        totals = {
            dict(labels)["device"]: each for labels, each in samples.get("vramscope_nvml_total_bytes", {}).items()
        }
        owners: Counter[str] = Counter()
        for labels, nbytes in samples.get("vramscope_ledger_bytes", {}).items():
            owners[dict(labels)["device"]] += int(nbytes)
            if nbytes < 0:
                self.note(f"{dict(labels)} has {nbytes:g} bytes")
        for device, nbytes in owners.items():
            if nbytes != totals.get(device):
                self.note(f"the ledger of {device} adds up to {nbytes}, not to {totals.get(device)}")

    def note(self, problem: str) -> None:
        if len(self.problems) < FAULTS_KEPT:
            self.problems.append(problem)

    def growth(self, of: str, warm_cycles: int) -> int:
        """By how many bytes a process grew from the cycles after `warm_cycles` to the last ones, by their medians."""
        values = [getattr(size, of) for size in self.sizes if size.cycles >= warm_cycles]
        tenth = max(1, len(values) // 10)
        return int(statistics.median(values[-tenth:]) - statistics.median(values[:tenth])) if values else 0


def watch(daemon: Daemon, cycles: int, interval_seconds: float = INTERVAL_SECONDS) -> Watch:
    """Scrape a daemon until its plan is over, and look at its processes now and then."""
    found, done, heard_at = Watch(), -1, time.monotonic()
    while done < cycles:
        began = time.monotonic()
        samples = daemon.samples()
        now = time.monotonic()
        found.longest_seconds = max(found.longest_seconds, now - began)
        ended = samples.get("vramscope_cycles_total", {})
        count = int(sum(ended.values()))
        found.check(samples, count)
        if any(value for labels, value in ended.items() if dict(labels)["outcome"] != "succeeded"):
            found.note(f"a cycle failed: {daemon.status()['faults']}")
            break
        if count > done:
            done, heard_at = count, now
            if not found.sizes or count >= found.sizes[-1].cycles + cycles // WEIGHED or count == cycles:
                _weigh(found, daemon, count)
        if now - heard_at > CYCLE_SECONDS:
            found.note(f"no cycle ended for {CYCLE_SECONDS:g} s after {done}")
            break
        time.sleep(max(0.0, interval_seconds - (time.monotonic() - began)))
    if len(found.series) > 1:
        found.note(f"the number of series changed: {dict(found.series)}")
    return found


def _weigh(found: Watch, daemon: Daemon, cycles: int) -> None:
    supervisor, pid = read_resident(daemon.process.pid), daemon.worker_pid()
    worker = read_resident(pid) if pid is not None else None
    if supervisor is not None and worker is not None:
        found.sizes.append(Size(cycles, supervisor.anonymous_bytes, worker.anonymous_bytes))


def run_several(
    plan: Path, cycles: int, options: Sequence[str], environment: Mapping[str, str], third: str = "tiny"
) -> tuple[Watch, dict[str, Any]]:
    """Several models on two devices, checked from outside and inside; returns what was found."""
    plan.write_text(SEVERAL.replace("CYCLES", str(cycles)).replace("THIRD", third))
    daemon = AuditedDaemon([str(plan), *options], default_cache(environment), environment)
    try:
        found = watch(daemon, cycles)
    finally:
        daemon.stop()
    audit = daemon.audit()
    for fault in audit["faults"]:
        found.note(f"inside: {fault}")
    if not found.settled or not audit.get("ledgers") or not audit.get("residues"):
        found.note(f"nothing was looked at: {found.settled} settled pages, {audit}")
    return found, audit


def run_one(
    plan: Path, cycles: int, options: Sequence[str], environment: Mapping[str, str], warm_cycles: int = 100
) -> Watch:
    """One tiny model, over and over; the daemon is the one that users start."""
    plan.write_text(ONE.replace("CYCLES", str(cycles)))
    daemon = Daemon([str(plan), *options], default_cache(environment), environment)
    try:
        found = watch(daemon, cycles)
    finally:
        daemon.stop()
    for process, limit in (("supervisor", SUPERVISOR_GROWTH_BYTES), ("worker", WORKER_GROWTH_BYTES)):
        if (growth := found.growth(f"{process}_bytes", warm_cycles)) > limit:
            found.note(f"the {process} grew by {growth} bytes after {warm_cycles} cycles")
    return found


def figures(found: Watch, warm_cycles: int) -> dict[str, Any]:
    last = found.sizes[-1] if found.sizes else Size(0, 0, 0)
    return {
        "cycles": last.cycles,
        "scrapes": found.scrapes,
        "longest_scrape_seconds": found.longest_seconds,
        "series": dict(found.series),
        "supervisor_bytes": last.supervisor_bytes,
        "worker_bytes": last.worker_bytes,
        "supervisor_growth_bytes": found.growth("supervisor_bytes", warm_cycles),
        "worker_growth_bytes": found.growth("worker_bytes", warm_cycles),
        "sizes": [[size.cycles, size.supervisor_bytes, size.worker_bytes] for size in found.sizes],
        "problems": found.problems,
    }


def tell(name: str, told: Mapping[str, Any]) -> None:
    slowest = told["longest_scrape_seconds"]
    say(f"{name}: {told['cycles']} cycles, {told['scrapes']} pages, the slowest in {slowest:.3f} s")
    for process in ("supervisor", "worker"):
        held, growth = (told[f"{process}{what}_bytes"] / (1 << 20) for what in ("", "_growth"))
        say(f"  {process}: {held:.1f} MiB of its own, {growth:+.2f} MiB since it was warm")
    say(f"  series: {told['series']}")
    for problem in told["problems"] or ["nothing wrong"]:
        say(f"  {problem}")


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("simulated", "cuda"), default="simulated")
    parser.add_argument("--cycles", type=int, default=200, help="cycles of several models (default: 200; 0: none)")
    parser.add_argument("--one", type=int, default=1000, help="cycles of one tiny model (default: 1000; 0: none)")
    parser.add_argument("--third", default="tiny", help="the third model, such as qwen2.5-0.5b (default: tiny)")
    parser.add_argument("--json", type=Path, default=Path("long_run.json"), help="where the figures go")
    arguments = parser.parse_args()
    options = SIMULATED if arguments.device == "simulated" else ("--device", "cuda")
    told: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as directory:
        plan = Path(directory) / "plan.yaml"
        if arguments.cycles:
            found, audit = run_several(plan, arguments.cycles, options, os.environ, arguments.third)
            told["several"] = figures(found, arguments.cycles // 2) | {"audit": audit}
            tell("several models", told["several"])
            say(f"  inside: {audit.get('ledgers')} ledgers and {audit.get('residues')} residues were checked")
        if arguments.one:
            warm_cycles = min(100, arguments.one // 2)
            told["one"] = figures(run_one(plan, arguments.one, options, os.environ, warm_cycles), warm_cycles)
            tell("one model", told["one"])
    write_json(arguments.json, told)
    return int(any(each["problems"] for each in told.values()))


if __name__ == "__main__":
    sys.exit(main())

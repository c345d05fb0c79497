"""Faults at random in one daemon: `make chaos`, or `python -m tests.chaos.run` (in the repository's root).

A tiny model is loaded and unloaded again and again, while somebody looks at the metrics ten times a second and
something goes wrong every few cycles. At the end it is the same daemon, nothing is lost and nothing is left.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.daemon import COUNT
from tests.chaos.faults import CYCLES, FAULTS, NVML_FAULTS, Fault, Stage, plan
from tests.chaos.journal import DROPPED, JOURNAL_FAULTS, Account, read
from tests.daemon import Daemon, children_of, wait_for
from tests.devices.fake_nvml import FakeNvml, Gpu, build

from vramscope.settings import default_cache

SCRAPE_SECONDS = 0.1
SLOWEST_SCRAPE_SECONDS = 1.0
HOST_RESIDUE_BYTES = 32 << 20
LONGEST_SECONDS = 900.0


class ChaosDaemon(Daemon):
    program = ("-m", "tests.chaos.daemon")

    def count(self) -> dict:
        """How many cycles there were, seen from the inside, once the daemon has ended."""
        (line,) = [line for line in self.lines if line.startswith(COUNT)]
        return json.loads(line.removeprefix(COUNT))


@dataclass
class Verdict:
    """What the run showed; `problems` is empty where all is well."""

    problems: list[str] = field(default_factory=list)
    survived: Counter[str] = field(default_factory=Counter)
    outcomes: dict[str, int] = field(default_factory=dict)
    dropped: int = 0
    journal: Account | None = None
    scrapes: int = 0
    slowest_seconds: float = 0.0

    def expect(self, what: str, *, holds: bool) -> None:
        if not holds:
            self.problems.append(what)


class Onlooker:
    """Scrapes all the time, as a Prometheus in a hurry would."""

    def __init__(self, stage: Stage, verdict: Verdict) -> None:
        self._stage, self._verdict = stage, verdict
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_exception: object) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._over.wait(SCRAPE_SECONDS):
            try:
                seconds = self._stage.scrape()
            except (AssertionError, OSError) as error:
                self._verdict.problems.append(f"a scrape failed: {error!r}")
                continue
            self._verdict.scrapes += 1
            self._verdict.slowest_seconds = max(self._verdict.slowest_seconds, seconds)


def kinds_of(machine: FakeNvml | None) -> list[Fault]:
    return [*FAULTS, *JOURNAL_FAULTS, *(NVML_FAULTS if machine is not None else ())]


def faults_of(machine: FakeNvml | None, chance: random.Random) -> Iterator[Fault]:
    """Every kind once, in any order, and then any, forever."""
    kinds = kinds_of(machine)
    while True:
        yield from chance.sample(kinds, len(kinds))


def suffer(stage: Stage, cycles: int, each: int, verdict: Verdict) -> None:
    """Let things go wrong until there were so many cycles, and every kind of fault so often."""
    end = time.monotonic() + LONGEST_SECONDS
    kinds = len(kinds_of(stage.machine))
    for fault in faults_of(stage.machine, stage.chance):
        rounds = min(verdict.survived.values()) if len(verdict.survived) == kinds else 0
        if (stage.cycles() >= cycles and rounds >= each) or time.monotonic() > end:
            break
        try:
            fault(stage)
            stage.good_cycle()
        except (AssertionError, OSError) as error:
            verdict.problems.append(f"{fault.__name__}: {error}")
            break
        verdict.survived[fault.__name__] += 1
        calm = stage.cycles() + stage.chance.randint(1, 5)
        wait_for("some calm", lambda calm=calm: stage.cycles() >= calm)
    verdict.expect(f"fewer than {cycles} cycles in {LONGEST_SECONDS:g} s", holds=stage.cycles() >= cycles)


def look_back(stage: Stage, verdict: Verdict) -> None:
    """One last cycle, in a plan that ends; then everything is where it was."""
    stage.plan.write_text(plan("last", "1"))
    assert stage.post("/-/reload") == 200

    def is_over() -> bool:
        state = stage.daemon.status()["plan"]
        return state["name"] == "last" and state["outcome"] == "succeeded"

    wait_for("the last plan", is_over)
    stage.worker()
    samples = stage.daemon.samples()
    for name in ("vramscope_torch_allocated_bytes", "vramscope_torch_reserved_bytes"):
        verdict.expect(f"{name}: {samples[name]}", holds=set(samples[name].values()) == {0})
    for labels, nbytes in samples["vramscope_residue_bytes"].items():
        limit = HOST_RESIDUE_BYTES if dict(labels)["where"] == "host" else 0
        verdict.expect(f"residue {dict(labels)}: {nbytes:.0f} bytes", holds=nbytes <= limit)
    verdict.outcomes = {dict(labels)["outcome"]: int(count) for labels, count in samples[CYCLES].items()}
    verdict.dropped = int(stage.daemon.total(DROPPED) or 0)
    children = children_of(stage.daemon.process.pid)
    verdict.expect(f"children {children}, not the worker alone", holds=len(children) == 1)
    verdict.expect("the daemon ended by itself", holds=stage.daemon.process.poll() is None)


def account(daemon: ChaosDaemon, stage: Stage, verdict: Verdict) -> None:
    """After the daemon's end: cycles are all told, and no process is left."""
    count = daemon.count()
    told = sum(verdict.outcomes.values())
    verdict.expect(f"{count['started']} cycles began, the metrics tell of {told}", holds=count["started"] == told)
    verdict.expect(
        f"the metrics tell of {verdict.outcomes}, the events of {count['ended']}",
        holds={key: number for key, number in verdict.outcomes.items() if number} == count["ended"],
    )
    verdict.expect(
        f"{verdict.dropped} dropped events became {count['dropped']}", holds=verdict.dropped == count["dropped"]
    )
    verdict.journal = read(stage.journal.parent)
    compare(verdict.journal, stage.torn, verdict)
    left = [pid for pid in stage.workers if Path(f"/proc/{pid}").exists()]
    verdict.expect(f"workers that are left: {left}", holds=not left)
    verdict.expect("the log has a traceback", holds="Traceback" not in daemon.output)


def compare(journal: Account, torn: int, verdict: Verdict) -> None:
    """The journal has what the metrics have, but for what it says itself that a full disk cost."""
    verdict.expect(
        f"the journal tells of {journal.dropped} events that are missing, the metrics of {verdict.dropped}",
        holds=journal.dropped == verdict.dropped,
    )
    verdict.expect(f"{journal.damaged} damaged lines of {torn} torn ones", holds=journal.damaged == torn)
    told = sum(verdict.outcomes.values())
    lost = [told - journal.started] + [
        number - journal.ended.get(outcome, 0) for outcome, number in verdict.outcomes.items()
    ]
    verdict.expect(
        f"the journal has {journal.started} cycles, ended {journal.ended}, and lost {verdict.dropped} events; "
        f"the metrics tell of {verdict.outcomes}",
        holds=min(lost) >= 0 and sum(lost) <= verdict.dropped and set(journal.ended) <= set(verdict.outcomes),
    )


@contextmanager
def machine_in(directory: Path) -> Iterator[FakeNvml | None]:
    """A machine with one card as far as NVML goes; None where there is no compiler for it."""
    if not any(shutil.which(name) for name in ("cc", "gcc", "clang")):
        yield None
        return
    for name in ("libraries", "machine"):
        (directory / name).mkdir()
    machine = FakeNvml(build(directory / "libraries"), directory / "machine")
    machine.set(Gpu())
    yield machine


def run(cycles: int, each: int, seed: int, cache: Path) -> Verdict:
    """Start a daemon, let it suffer, and see."""
    verdict = Verdict()
    with tempfile.TemporaryDirectory() as text, machine_in(Path(text)) as machine:
        path = Path(text) / "plan.yaml"
        path.write_text(plan("first"))
        journal = Path(text) / "journal" / "run.jsonl"
        journal.parent.mkdir()
        environment = machine.environment() if machine is not None else dict(os.environ)
        arguments = [str(path), "--device", "simulated", "--web.enable-lifecycle", "--journal", str(journal)]
        daemon = ChaosDaemon(arguments, cache, environment)
        stage = Stage(daemon, path, journal, machine, random.Random(seed))  # noqa: S311 - no secret
        try:
            stage.good_cycle()
            with Onlooker(stage, verdict):
                suffer(stage, cycles, each, verdict)
                look_back(stage, verdict)
        finally:
            code = daemon.stop()
        verdict.expect(f"the daemon ended with {code}", holds=code == 0)
        account(daemon, stage, verdict)
        verdict.scrapes += len(stage.slow)
        verdict.slowest_seconds = max([verdict.slowest_seconds, *(seconds for seconds, _ in stage.slow)])
        if verdict.problems:
            print(daemon.output[-5000:])
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cycles", type=int, default=200)
    parser.add_argument("--each", type=int, default=3, help="how often each kind of fault at least (default: 3)")
    parser.add_argument("--seed", type=int, default=None, help="to repeat a run")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    began = time.monotonic()
    verdict = run(arguments.cycles, arguments.each, seed, default_cache(os.environ))
    slowest = verdict.slowest_seconds
    verdict.expect(f"a scrape took {slowest:.3f} s", holds=slowest <= SLOWEST_SCRAPE_SECONDS)
    for kind, count in sorted(verdict.survived.items()):
        print(f"{count:5} {kind.replace('_', ' ')}")
    print(f"{sum(verdict.survived.values()):5} faults survived in {time.monotonic() - began:.0f} s")
    print(f"cycles: {', '.join(f'{count} {outcome}' for outcome, count in verdict.outcomes.items())}")
    if (journal := verdict.journal) is not None:
        ended = ", ".join(f"{count} {outcome}" for outcome, count in sorted(journal.ended.items()))
        print(
            f"journal: {journal.started} cycles in {journal.files} files, {ended}; {journal.dropped} events did not fit"
        )
    print(f"{verdict.scrapes} scrapes, the slowest {slowest * 1000:.0f} ms")
    for problem in verdict.problems:
        print(f"PROBLEM: {problem}")
    return bool(verdict.problems)


if __name__ == "__main__":
    sys.exit(main())

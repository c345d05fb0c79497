"""Every query of every dashboard gives data, with the labels that it is shown by, for daemons that did everything."""

import os
import shutil
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.daemon import Daemon, wait_for
from tests.devices.fake_nvml import FakeNvml, Gpu, build
from tests.memory.trees import Tree, write
from tests.monitoring.grafana import METRIC, ROOT, Asked, filled, names, questions, read
from tests.prometheus import Prometheus, free_port

HERE = Path(__file__).parent
LEAK = HERE.parent / "leak"
RULES = ROOT / "deploy/prometheus/rules"
LIMIT_BYTES = 64 << 30
SCRAPE_SECONDS = 0.5
# Five changes of what a load took: from then on it is known how long one usually takes.
CYCLES = 6
# Empty, which to Prometheus is absent, for a model that has neither; tests/collectors shows them for one that has.
MAY_BE_EMPTY = {"quantization", "revision"}
# The one owner of what lies outside of the allocator where the driver does not tell processes apart; simulated ones do.
ELSEWHERE_ONLY = 'owner="outside_allocator"'

QUESTIONS = [(name, asked) for name in names() for asked in questions(read(name))]

pytestmark = pytest.mark.timeout(240)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A Prometheus, since when it watches, in seconds since the epoch, and the daemons' host:port."""

    prometheus: Prometheus
    began: float
    instances: list[str]

    def series(self, expr: str) -> list[dict[str, str]]:
        """The labels of each series that an expression gave at any moment, as Grafana would ask for a graph."""
        variables = {"instance": "|".join(self.instances), "device": ".*", "model": ".*"}
        now = time.time()
        text = filled(expr, variables, interval="4s", span=f"{int(now - self.began)}s")
        data = self.prometheus.ask("/api/v1/query_range", query=text, start=self.began, end=now, step=SCRAPE_SECONDS)
        return [each["metric"] for each in data["result"] if any(value != "NaN" for _, value in each["values"])]

    def check(self, asked: Asked, patience: float = 30) -> None:
        """Fail unless there is data, of each metric that is named, and every series has the labels that are shown.

        The daemons run on, so that what is not there yet may come within `patience` seconds.
        """
        expr = asked.expr.replace(ELSEWHERE_ONLY, 'owner="cuda_context"')
        found = wait_for(f"{asked.where}: data for {expr}", lambda: self.series(expr), patience)
        for metric in METRIC.findall(asked.expr):
            assert self.series(metric), f"{asked.where}: there is no metric {metric}"
        for label in asked.labels - MAY_BE_EMPTY:
            lacking = [labels for labels in found if not labels.get(label)]
            assert not lacking, f"{asked.where}: no label {label} in {lacking}"
        others = {label for labels in found for label in labels} - asked.labels
        assert not asked.table or not others, f"{asked.where}: would have columns for {others}"


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Daemon]]:
    """One that leaks and fails on two devices, and one with a slow bus and a card that only NVML knows."""
    directory = tmp_path_factory.mktemp("daemons")
    tree = Tree(directory, "0::/c1", f"MemTotal: {LIMIT_BYTES >> 10} kB").v2("c1", str(LIMIT_BYTES), "1000000000")
    write(tree.root, {"c1/memory.events": "oom_kill 0"})
    leaking = [str(HERE / "everything.yaml"), "--cgroup-root", str(tree.root), "--proc-root", str(tree.proc)]
    leaking += ["--capacity", "cuda:0=1GiB", "--capacity", "cuda:1=4GiB", "--bandwidth", "160MiB"]
    leaking += ["--journal", str(directory / "run.jsonl")]
    slow = [str(HERE / "slow_bus.yaml"), "--device", "simulated", "--bandwidth", "400KiB"]
    slow += ["--web-config", str(directory / "web.yml")]
    (directory / "web.yml").touch()  # asks for nothing, which is allowed
    libraries, told = directory / "libraries", directory / "machine"
    libraries.mkdir()
    told.mkdir()
    machine = FakeNvml(build(libraries), told)
    machine.set(Gpu())
    with ThreadPoolExecutor() as both:  # a worker takes seconds to import PyTorch
        begun = [
            both.submit(Daemon, leaking, directory / "leaking", {**os.environ, "PYTHONPATH": str(LEAK)}),
            both.submit(Daemon, slow, directory / "slow", machine.environment()),
        ]
    try:
        yield [each.result() for each in begun]
    finally:
        for daemon in (each.result() for each in begun if not each.exception()):
            daemon.process.kill()
            daemon.process.wait()
            daemon._reader.join(5)
        shutil.rmtree(directory)


@pytest.fixture(scope="module")
def prometheus(daemons: list[Daemon], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """With the alerts' own rules, those about a day's history evaluated more often than every two minutes."""
    if shutil.which("prometheus") is None:
        pytest.skip("Prometheus is not installed: apt-get install prometheus")
    directory = tmp_path_factory.mktemp("prometheus")
    rules = []
    for path in RULES.glob("*.yml"):
        rules.append(directory / path.name)
        rules[-1].write_text(path.read_text(encoding="utf-8").replace("interval: 2m", "interval: 1s"))
    targets = [daemon.url.removeprefix("http://") for daemon in daemons]
    server = Prometheus(directory, targets, free_port(), interval=f"{int(SCRAPE_SECONDS * 1000)}ms", rules=rules)
    yield server
    server.stop()


@pytest.fixture(scope="module")
def measured(daemons: list[Daemon], prometheus: Prometheus) -> Measured:
    """What Prometheus has seen when the daemons have done everything: cycles, failures, a leak, a killed worker."""
    began = time.time()
    everything, slow = daemons
    host = slow.url.removeprefix("http://")
    before = f'vramscope_worker_restarts_total{{instance="{host}",reason="signal"}} == 0'
    wait_for("Prometheus seeing that no worker was killed yet", lambda: prometheus.query(before))
    kill_worker(slow)
    wait_for("enough cycles", lambda: (everything.total("vramscope_cycles_total") or 0) >= CYCLES, 120)
    wait_for("a good cycle after the kill", lambda: slow.total("vramscope_cycles_total", outcome="succeeded"), 120)
    for seen in ('vramscope_cycles_total{outcome="succeeded"} > 0', "instance_model:vramscope_load_seconds:median1d"):
        wait_for(f"Prometheus seeing {seen}", lambda seen=seen: prometheus.query(seen), 30)
    instances = [daemon.url.removeprefix("http://") for daemon in daemons]
    return Measured(prometheus=prometheus, began=began, instances=instances)


def kill_worker(daemon: Daemon) -> None:
    """Kill the worker in the middle of a move; once more where it was about to be exchanged, which is no failure."""
    for _ in range(5):
        wait_for("a move that takes long", lambda: daemon.total("vramscope_step_progress_ratio", kind="move"))
        if (pid := daemon.worker_pid()) is not None:
            os.kill(pid, signal.SIGKILL)
            wait_for("the move's end", lambda: not daemon.total("vramscope_step_progress_ratio", kind="move"))
        if daemon.total("vramscope_worker_restarts_total"):
            return
    raise AssertionError("no kill was counted")


@pytest.mark.parametrize(
    "asked", [asked for _, asked in QUESTIONS], ids=[f"{name}: {asked.where}" for name, asked in QUESTIONS]
)
def test_query_gives_data_with_the_labels_that_are_shown(measured: Measured, asked: Asked) -> None:
    measured.check(asked)


def test_a_misspelt_metric_label_or_function_is_found(measured: Measured) -> None:
    right = Asked(
        where="here",
        expr='sum by (device) (vramscope_nvml_used_bytes{instance=~"$instance"})',
        labels=frozenset({"device"}),
    )
    measured.check(right)
    for wrong in (
        replace(right, expr=right.expr.replace("used", "usde")),
        replace(right, expr=f"{right.expr} or sum by (device) (vramscope_nvml_usde_bytes{{}})"),
        replace(right, expr=right.expr.replace("instance=~", "instnace=~")),
        replace(right, expr=right.expr.replace("sum", "smu")),
        replace(right, labels=frozenset({"model"})),
        replace(right, labels=frozenset(), table=True),
    ):
        with pytest.raises(AssertionError):
            measured.check(wrong, patience=0)

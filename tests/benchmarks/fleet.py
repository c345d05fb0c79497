"""A fleet on one Prometheus: `python -m tests.benchmarks.fleet` (in the repository's root; some five minutes).

Simulated daemons (fleet_pages.py) are scraped by a real Prometheus with the rules of deploy/prometheus/rules. It
starts with what it would have kept of three hours of the Fleet dashboard's graphs, and of a day of load times.
Afterwards every query of the dashboard is asked as Grafana asks it for these three hours, and what Prometheus takes is
told. With --remote-write it is only told how many bytes a sample takes when it is sent on.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from tests.benchmarks.figures import Spread, say, say_table, write_json
from tests.benchmarks.fleet_history import SCRAPE_SECONDS, bytes_a_sample, graphs, loads, pages, write_blocks
from tests.benchmarks.fleet_pages import Instance
from tests.daemon import wait_for
from tests.monitoring.grafana import ROOT, VALUES, filled, metrics_read, panels, read
from tests.prometheus import Prometheus, free_port

RULES = sorted((ROOT / "deploy/prometheus/rules").glob("*.yml"))
SPAN_SECONDS = 3 * 3600
VARIABLES = {"instance": ".*", "device": ".*", "model": ".*"}
POINTS = 650  # pixels that a graph of half a laptop's width has, and so the most points that Grafana asks for
GOAL_SECONDS = 1.0
TOLD = {
    "scrape_seconds_median": "quantile(0.5, scrape_duration_seconds)",
    "scrape_seconds_worst": "max(scrape_duration_seconds)",
    "series_an_instance_mean": "avg(scrape_samples_scraped > 0)",
    "series_an_instance_most": "max(scrape_samples_scraped)",
    "series_of_rules": 'count({__name__=~"instance.*:vramscope.*|vramscope:.*"})',
    "alerts_firing": 'count(ALERTS{alertstate="firing"})',
    "up": "sum(up)",
}


@dataclass(frozen=True, kw_only=True)
class Question:
    """A query of the dashboard: where it stands, and the address and parameters that Grafana would ask with."""

    where: str
    path: str
    parameters: dict[str, Any]


def dashboard_questions(now: float) -> Iterator[Question]:
    """Every query of every panel and variable of the Fleet dashboard, over its time range."""
    fleet = read("fleet")
    for panel in panels(fleet):
        step = max(SCRAPE_SECONDS, round(SPAN_SECONDS / panel.get("maxDataPoints", POINTS)))
        rate = f"{max(step + SCRAPE_SECONDS, 4 * SCRAPE_SECONDS)}s"  # Grafana's $__rate_interval
        for target in panel["targets"]:
            text = filled(target["expr"], VARIABLES, interval=rate, span=f"{SPAN_SECONDS}s")
            where = f"{panel['title']} {target['refId']}"
            if target.get("range"):
                span = {"start": now - SPAN_SECONDS, "end": now, "step": step}
                yield Question(where=where, path="/api/v1/query_range", parameters={"query": text, **span})
            else:
                yield Question(where=where, path="/api/v1/query", parameters={"query": text, "time": now})
    for variable in fleet["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = VALUES.fullmatch(variable["query"]).groups()
            match = filled(selector, VARIABLES, interval="1s", span="1s")
            query = urllib.parse.urlencode({"match[]": match, "start": now - SPAN_SECONDS, "end": now})
            where = f"variable {variable['name']}"
            yield Question(where=where, path=f"/api/v1/label/{label}/values?{query}", parameters={})


def fleet_metrics() -> str:
    """A selector of every series that the Fleet dashboard reads: what a Prometheus above others needs."""
    return f'{{__name__=~"{"|".join(metrics_read(read("fleet")))}"}}'


@contextmanager
def serving(number: int) -> Iterator[tuple[psutil.Process, int]]:
    """The process that is all daemons, and its port."""
    port = free_port()
    command = [sys.executable, "-P", "-m", "tests.benchmarks.fleet_pages", f"127.0.0.1:{port}", str(number)]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'daemon'}:{ROOT}"}
    process = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        wait_for("the pages being served", lambda: process.poll() is not None or _answers(port), 120)
        yield psutil.Process(process.pid), port
    finally:
        process.terminate()
        process.wait(20)


def _answers(port: int) -> bool:
    with suppress(OSError), urllib.request.urlopen(f"http://127.0.0.1:{port}/0/healthz", timeout=2) as answer:
        return answer.status == 200
    return False


def targets(number: int, port: int) -> list[dict[str, Any]]:
    """One entry of static_configs for each daemon: all at one port, each under a path of its own."""
    return [
        {
            "targets": [f"127.0.0.1:{port}"],
            "labels": {"instance": Instance(each).name, "__metrics_path__": f"/{each}/metrics"},
        }
        for each in range(number)
    ]


def own_metric(prometheus: Prometheus, name: str) -> float:
    """The sum of one of Prometheus' metrics about itself."""
    with urllib.request.urlopen(f"{prometheus.url}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", text, re.MULTILINE))


def watch(prometheus: Prometheus, pages_process: psutil.Process, seconds: float) -> dict[str, Any]:
    """What Prometheus takes in so many seconds, after the first scrapes."""
    server = psutil.Process(prometheus.process.pid)
    time.sleep(2 * SCRAPE_SECONDS)
    appended = own_metric(prometheus, "prometheus_tsdb_head_samples_appended_total")
    began, cpu, pages_cpu = time.monotonic(), sum(server.cpu_times()[:2]), sum(pages_process.cpu_times()[:2])
    resident, load = [], []
    while time.monotonic() < began + seconds:
        time.sleep(5)
        resident.append(server.memory_info().rss)
        load.append(os.getloadavg()[0])
    took = time.monotonic() - began
    return {
        "watched_seconds": took,
        "head_series": own_metric(prometheus, "prometheus_tsdb_head_series"),
        "samples_per_second": (own_metric(prometheus, "prometheus_tsdb_head_samples_appended_total") - appended) / took,
        "resident_bytes_most": max(resident),
        "cores": (sum(server.cpu_times()[:2]) - cpu) / took,
        "cores_of_the_pages": (sum(pages_process.cpu_times()[:2]) - pages_cpu) / took,
        "machine_load": Spread.of(load).median,
        "rule_seconds": own_metric(prometheus, "prometheus_rule_group_last_duration_seconds"),
        **{name: prometheus.value(query) for name, query in TOLD.items()},
        "series_of_the_fleet_dashboard": prometheus.value(f"count({fleet_metrics()})"),
    }


def time_queries(prometheus: Prometheus, rounds: int) -> list[dict[str, Any]]:
    """How long each query takes, with the series that it gives; the first round is not counted."""
    found: dict[str, list[float]] = {}
    series: dict[str, int] = {}
    for _ in range(rounds + 1):
        for question in dashboard_questions(time.time()):
            began = time.perf_counter()
            data = prometheus.ask(question.path, **question.parameters)
            found.setdefault(question.where, []).append(time.perf_counter() - began)
            series[question.where] = len(data["result"] if isinstance(data, dict) else data)
    return [
        {
            "query": where,
            "series": series[where],
            "median_seconds": Spread.of(took[1:]).median,
            "most_seconds": max(took[1:]),
        }
        for where, took in found.items()
    ]


def written(prometheus: Prometheus, seconds: float) -> float:
    """The bytes that a sample takes on its way to a remote storage."""
    time.sleep(seconds)
    nbytes = own_metric(prometheus, "prometheus_remote_storage_bytes_total")
    return nbytes / own_metric(prometheus, "prometheus_remote_storage_samples_total")


def report(figures: dict[str, Any]) -> None:
    say_table(("figure", "value"), [(name, f"{value:,.3f}") for name, value in figures["prometheus"].items()])
    rows = [
        (
            each["query"],
            str(each["series"]),
            f"{1000 * each['median_seconds']:.0f}",
            f"{1000 * each['most_seconds']:.0f}",
        )
        for each in figures["queries"]
    ]
    say_table(("query", "series", "median ms", "most ms"), rows)
    slow = [each["query"] for each in figures["queries"] if each["most_seconds"] > GOAL_SECONDS]
    say(f"over {GOAL_SECONDS:g} s: {', '.join(slow) or 'none'}")


def measure(arguments: argparse.Namespace, directory: Path) -> dict[str, Any]:
    instances = [Instance(number) for number in range(arguments.instances)]
    scratch, until = directory / "lines", int(time.time()) - 180
    write_blocks(pages(Instance(2), until, 2), directory / "one", scratch)
    a_sample, samples = bytes_a_sample(directory / "one")
    write_blocks(graphs(instances, until), directory / "data", scratch)
    write_blocks(loads(instances, until), directory / "data", scratch)
    say("the past is written")
    with serving(arguments.instances) as (process, port):
        write = {"remote_write": [{"url": f"http://127.0.0.1:{port}/write"}]} if arguments.remote_write else {}
        prometheus = Prometheus(
            directory,
            targets(arguments.instances, port),
            free_port(),
            interval=f"{SCRAPE_SECONDS}s",
            rules=RULES,
            more=write,
        )
        try:
            if arguments.remote_write:
                return {"remote_write_bytes_a_sample": written(prometheus, arguments.seconds)}
            taken = watch(prometheus, process, arguments.seconds)
            queries = time_queries(prometheus, arguments.rounds)
        finally:
            prometheus.stop()
    taken |= {"disk_bytes_a_sample": a_sample, "samples_weighed": samples}
    return {"instances": arguments.instances, "prometheus": taken, "queries": queries}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--instances", type=int, default=200, help="how many daemons (default: 200)")
    parser.add_argument("--seconds", type=float, default=180, help="how long Prometheus is watched (default: 180)")
    parser.add_argument("--rounds", type=int, default=5, help="how often each query is asked (default: 5)")
    parser.add_argument(
        "--remote-write", action="store_true", help="only tell the bytes that a sample takes when sent on"
    )
    parser.add_argument("--json", type=Path, default=Path("fleet.json"), help="where the figures go")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        figures = measure(arguments, Path(directory))
    if "queries" in figures:
        report(figures)
    write_json(arguments.json, figures)


if __name__ == "__main__":
    main()

"""A running daemon whose plan file changes, as a user or Kubernetes changes it."""

import signal
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.daemon import Daemon, wait_for

PLAN = """
version: 1
name: NAME
models:
  MODEL: {source: "synthetic:tiny"}
repeat: forever
every: 200ms
steps:
  - load: MODEL
  - move: MODEL
  - unload: MODEL
"""


def plan(name: str, model: str) -> str:
    return PLAN.replace("NAME", name).replace("MODEL", model)


def good_cycles(daemon: Daemon) -> float:
    return daemon.total("vramscope_cycles_total", outcome="succeeded") or 0


def runs(daemon: Daemon, name: str, model: str) -> bool:
    state = daemon.status()
    return state["plan"]["name"] == name and any(row["model"] == model for row in state["results"])


def post(daemon: Daemon, path: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(daemon.url + path, method="POST", headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.fixture
def running(start: Callable[..., Daemon], write_plan: Callable[[str], Path]) -> Daemon:
    daemon = start(write_plan(plan("first", "a")), "--device", "simulated", "--web.enable-lifecycle")
    wait_for("a good cycle", lambda: good_cycles(daemon) >= 1)
    return daemon


def test_a_changed_file_is_taken_up_and_nothing_of_what_it_no_longer_names_is_left(
    running: Daemon, write_plan: Callable[[str], Path]
) -> None:
    assert 'model="a"' in running.get("/metrics")
    worker, cycles = running.worker_pid(), good_cycles(running)
    write_plan(plan("second", "b"))
    wait_for("a result of the new plan", lambda: runs(running, "second", "b"))

    page = running.get("/metrics")
    assert 'model="a"' not in page
    assert 'plan="first"' not in page
    assert running.worker_pid() == worker, "the worker goes on"
    assert good_cycles(running) >= cycles, "counters go on"
    assert running.total("vramscope_plan_last_reload_success") == 1
    assert running.total("vramscope_forecast_error_bytes") in (0, None)
    assert running.stop() == 0


def test_a_bad_file_and_then_a_good_one_by_sighup(running: Daemon, write_plan: Callable[[str], Path]) -> None:
    path = write_plan("version: 1\nsteps:\n  - lod: a\n")
    running.process.send_signal(signal.SIGHUP)
    wait_for("the gauge", lambda: running.total("vramscope_plan_last_reload_success") == 0)
    dated = running.total("vramscope_plan_last_reload_success_timestamp_seconds")
    state = running.status()
    assert f"{path}:3:5: " in state["reload"]["problem"]
    assert state["faults"][-1]["what"] == "plan reload"
    wait_for("the log", lambda: f"{path}:3:5: " in running.output)
    before = good_cycles(running)
    wait_for("the old plan going on", lambda: good_cycles(running) > before + 1)

    write_plan(plan("second", "b"))
    running.process.send_signal(signal.SIGHUP)
    wait_for("a result of the new plan", lambda: runs(running, "second", "b"))
    assert running.total("vramscope_plan_last_reload_success") == 1
    assert running.total("vramscope_plan_last_reload_success_timestamp_seconds") > dated
    assert running.process.poll() is None


def test_clients_reload_and_end_the_run_where_they_may(running: Daemon, write_plan: Callable[[str], Path]) -> None:
    assert post(running, "/-/reload") == (200, "the plan file was read\n")
    write_plan("version: 1\nsteps: 7\n")
    code, text = post(running, "/-/reload")
    assert code == 500
    assert "plan.yaml:2:8: steps: expected a list, got the number 7" in text
    write_plan(plan("second", "b"))
    assert post(running, "/-/reload")[0] == 200
    wait_for("a result of the new plan", lambda: runs(running, "second", "b"))
    assert post(running, "/-/quit", **{"Sec-Fetch-Site": "cross-site"})[0] == 403
    assert post(running, "/-/quit")[0] == 200
    assert running.process.wait(60) == 0
    running._reader.join(30)
    assert running.output.endswith("ended by a request to quit; goodbye\n")


def test_nobody_may_unless_the_daemon_was_started_so(
    start: Callable[..., Daemon], write_plan: Callable[[str], Path]
) -> None:
    daemon = start(write_plan(plan("first", "a")), "--device", "simulated")
    for path in ("/-/reload", "/-/quit"):
        code, text = post(daemon, path)
        assert code == 403
        assert "--web.enable-lifecycle" in text
    assert daemon.process.poll() is None


def test_a_finished_plan_gives_way_to_a_new_one(
    start: Callable[..., Daemon], write_plan: Callable[[str], Path]
) -> None:
    path = write_plan(plan("first", "a").replace("forever", "1"))
    daemon = start(path, "--device", "simulated")
    wait_for("the end of the plan", lambda: daemon.status()["plan"]["outcome"] == "succeeded")
    new = path.with_suffix(".new")
    new.write_text(plan("second", "b").replace("forever", "1"))
    new.replace(path)
    wait_for("the end of the new plan", lambda: runs(daemon, "second", "b"))
    wait_for("its end", lambda: daemon.status()["plan"]["outcome"] == "succeeded")
    assert daemon.total("vramscope_cycles_total") == 2

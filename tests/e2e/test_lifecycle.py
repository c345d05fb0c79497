"""What a daemon does when things break or somebody stops it, seen from outside."""

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from tests.daemon import Daemon, children_of, wait_for

FULL_SIZE = """
version: 1
models:
  qwen: {source: "synthetic:qwen2.5-0.5b", dtype: float16}
repeat: REPEAT
steps:
  - load: qwen
  - unload: qwen
"""

TINY = """
version: 1
models:
  tiny: {source: SOURCE}
repeat: forever
every: 300ms
steps:
  - load: tiny
  - wait: 50ms
  - unload: tiny
"""


def is_loading(daemon: Daemon) -> bool:
    running = daemon.status()["running"]
    return running is not None and running["kind"] == "load" and running["phase"] in ("read", "convert")


def held_in_a_load(daemon: Daemon) -> int:
    """The worker's pid, stopped in the middle of a load: however late the test is, that load does not end."""
    while True:
        wait_for("a load under way", lambda: is_loading(daemon))
        pid = daemon.worker_pid()
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        wait_for("its standstill", lambda pid=pid: set(states(pid)) == {"T"})
        daemon.status()  # what it said before is read when this is answered
        if is_loading(daemon):
            return pid
        os.kill(pid, signal.SIGCONT)


def states(pid: int) -> list[str]:
    """The states of a process's threads, each a letter."""
    return [stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{pid}/task").glob("*/stat")]


@pytest.fixture
def loading(start: Callable[..., Daemon], write_plan: Callable[[str], Path]) -> Daemon:
    """A daemon in the middle of a full-size load."""
    daemon = start(write_plan(FULL_SIZE.replace("REPEAT", "forever")), "--device", "simulated")
    wait_for("a load under way", lambda: is_loading(daemon), 120)
    return daemon


def test_kill_9_of_the_worker_in_a_load_fails_that_step_and_the_next_cycle_succeeds(loading: Daemon) -> None:
    pid = held_in_a_load(loading)
    os.kill(pid, signal.SIGKILL)

    def after_the_failure() -> Mapping[str, Mapping[object, float]] | None:
        page = loading.samples()
        runs = {labels: count for labels, count in page["vramscope_step_runs_total"].items() if count}
        return page if any({("kind", "load"), ("outcome", "failed")} <= set(labels) for labels in runs) else None

    page = wait_for("the failed step", after_the_failure)
    assert not page.get("vramscope_model_parameters")
    failure = [fault for fault in loading.status()["faults"] if "load" in fault["what"]]
    assert "SIGKILL" in failure[0]["detail"]
    assert loading.total("vramscope_worker_restarts_total", reason="signal") == 1
    assert loading.total("vramscope_step_runs_total", kind="load", outcome="failed") == 1

    before = loading.total("vramscope_cycles_total", outcome="succeeded") or 0
    wait_for(
        "a good cycle after the restart",
        lambda: (loading.total("vramscope_cycles_total", outcome="succeeded") or 0) > before,
    )
    assert loading.total("vramscope_worker_up") == 1
    assert loading.worker_pid() != pid


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_signal_in_the_middle_of_a_load_stops_everything(loading: Daemon, number: signal.Signals, code: int) -> None:
    worker = loading.worker_pid()
    assert worker in children_of(loading.process.pid)
    assert loading.stop(number) == code
    wait_for("the worker's end", lambda: not Path(f"/proc/{worker}").exists())
    assert "Traceback" not in loading.output


def test_plan_that_fails_again_and_again_rests_between_cycles_and_heeds_the_first_signal(
    start: Callable[..., Daemon], write_plan: Callable[[str], Path]
) -> None:
    plan = (
        "version: 1\nmodels: {gone: {source: /no/such/model}}\nrepeat: forever\nsteps: [{load: gone}, {unload: gone}]\n"
    )
    daemon = start(write_plan(plan), "--device", "simulated")
    wait_for("three failed cycles", lambda: (daemon.total("vramscope_cycles_total", outcome="failed") or 0) >= 3)
    assert daemon.total("vramscope_cycles_total", outcome="failed") < 10, "it must not spin"
    assert daemon.stop(signal.SIGTERM) == 0


def test_worker_ends_when_its_supervisor_is_killed(loading: Daemon) -> None:
    worker = loading.worker_pid()
    loading.process.kill()
    loading.process.wait()
    wait_for("the orphan's end", lambda: not Path(f"/proc/{worker}").exists())


def test_supervisor_never_has_torch_in_its_process(loading: Daemon) -> None:
    assert "libtorch" in Path(f"/proc/{loading.worker_pid()}/maps").read_text()
    assert "libtorch" not in Path(f"/proc/{loading.process.pid}/maps").read_text()


@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_unusable_model_directory_fails_its_step_with_one_sentence_and_the_daemon_goes_on(
    damage: str, cache: Path, tmp_path: Path, start: Callable[..., Daemon], write_plan: Callable[[str], Path]
) -> None:
    directory = tmp_path / "model"
    if damage == "truncated":
        whole = _tiny(cache)
        directory.mkdir()
        for file in whole.iterdir():
            (directory / file.name).write_bytes(file.read_bytes())
        weights = directory / "model.safetensors"
        os.truncate(weights, weights.stat().st_size - 1000)
    daemon = start(write_plan(TINY.replace("SOURCE", str(directory))), "--device", "simulated")

    wait_for("two failed cycles", lambda: (daemon.total("vramscope_cycles_total", outcome="failed") or 0) >= 2)
    error = wait_for("the reason", lambda: daemon.status()["steps"][0]["error"])
    assert str(directory) in error
    assert "\n" not in error
    assert ("1,000 bytes" in error or "1000 bytes" in error) if damage == "truncated" else "no such" in error.lower()
    assert daemon.total("vramscope_worker_up") == 1
    assert daemon.total("vramscope_worker_restarts_total") == 0
    assert daemon.get("/healthz").strip() == "ok"
    assert daemon.stop() == 0


def _tiny(cache: Path) -> Path:
    from vramscope.anatomy.synthetic import materialize

    return materialize("tiny", cache, progress=lambda _done, _total: None, check=lambda: None)


def test_step_that_passes_its_timeout_fails_and_says_so(
    start: Callable[..., Daemon], write_plan: Callable[[str], Path]
) -> None:
    plan = "version: 1\nmodels: {}\nsteps:\n  - {wait: 60s, timeout: 300ms, name: nap}\n"
    daemon = start(write_plan(plan), "--device", "simulated", "--once")
    assert daemon.process.wait(60) == 1
    daemon._reader.join(30)
    assert "nap" in daemon.output
    assert "not done after its timeout of 0.3 s" in daemon.output


def test_cuda_demanded_where_there_is_none_is_one_clear_error(write_plan: Callable[[str], Path]) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    plan = write_plan("version: 1\nmodels: {}\nsteps: [{wait: 1s}]\n")
    command = [sys.executable, "-m", "vramscope", "run", str(plan), "--device", "cuda", "--listen", "127.0.0.1:0"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 2
    assert re.fullmatch(
        r"vramscope: --device cuda: torch .* \(use --device simulated to run without a GPU\)\n", ended.stderr
    )


def test_taken_port_is_named_and_the_plan_does_not_start(write_plan: Callable[[str], Path]) -> None:
    plan = write_plan("version: 1\nmodels: {}\nsteps: [{wait: 1s}]\n")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [sys.executable, "-m", "vramscope", "run", str(plan), "--listen", f"127.0.0.1:{port}"]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert ended.returncode == 1
    assert f"127.0.0.1:{port}" in ended.stderr
    assert "plan" not in ended.stdout


def test_what_was_run_until_ctrl_c_is_shown_with_a_goodbye(
    start: Callable[..., Daemon], write_plan: Callable[[str], Path]
) -> None:
    daemon = start(write_plan(TINY.replace("SOURCE", "synthetic:tiny")), "--device", "simulated")
    wait_for("two good cycles", lambda: (daemon.total("vramscope_cycles_total", outcome="succeeded") or 0) >= 2)
    assert daemon.stop(signal.SIGINT) == 130
    told = daemon.output[daemon.output.index("Results") :]
    assert "tiny cycle 1: 139,840 parameters" in told
    assert "tiny cycle 2: 139,840 parameters" in told
    assert told.endswith("ended by Ctrl-C; goodbye\n")


def test_plan_that_stopped_at_a_failure_says_so(
    start: Callable[..., Daemon], write_plan: Callable[[str], Path]
) -> None:
    plan = "version: 1\nmodels: {}\non_failure: stop\nrepeat: 3\nsteps: [{expect: {torch_allocated: {above: 1}}}]\n"
    daemon = start(write_plan(plan), "--device", "simulated")
    wait_for("the end of the plan", lambda: "stopped at a failure; serving until interrupted (Ctrl-C)" in daemon.output)
    assert "plan is done" not in daemon.output
    assert daemon.stop() == 0
    assert daemon.output.endswith("ended by SIGTERM; goodbye\n")


def test_quiet_run_says_what_went_wrong_on_standard_error_and_nothing_else(
    cache: Path, write_plan: Callable[[str], Path]
) -> None:
    plan = write_plan("version: 1\nmodels: {}\nsteps: [{expect: {torch_allocated: {above: 1}}}]\n")
    command = [sys.executable, "-m", "vramscope", "run", str(plan), "--once", "--quiet", "--listen", "127.0.0.1:0"]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "VRAMSCOPE_CACHE": str(cache)}
    ended = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False, env=environment)
    assert (ended.returncode, ended.stdout) == (1, "")
    simulated, step, cycle = ended.stderr.splitlines()
    assert "WARNING" in simulated
    assert "no_gpu_is_used" in simulated
    assert "step=expect" in step
    assert "cycle_ended" in cycle

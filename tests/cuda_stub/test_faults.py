"""What a daemon on CUDA does when the device breaks, runs full, is shared, or loses its worker."""

import os
import signal
from collections import Counter

import pytest
from tests.cuda_stub.watched_daemon import watched

pytestmark = pytest.mark.cuda_stub

MIB = 1 << 20
TOTAL_MIB, CONTEXT_MIB = 12288, 113
CYCLES = "vramscope_cycles_total"
PLAN = """
version: 1
models: {tiny: {source: "synthetic:tiny"}}
repeat: forever
steps:
  - load: tiny
  - {wait: 800ms, name: in RAM}
  - {move: tiny, name: there}
  - {wait: 800ms, name: on device}
  - {move: {model: tiny, to: cpu}, name: back}
  - unload: tiny
  - release
"""
RUNTIME = """
import ctypes
runtime = ctypes.CDLL("libcudart.so.13")
address = ctypes.c_void_p()
def hold(nbytes):
    return runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(nbytes))
"""


@pytest.fixture(scope="module")
def daemon(shared_machine, checkpoint_cache, tmp_path_factory):
    """A daemon that loads and moves a tiny model for ever, on one stub card."""
    shared_machine.configure(total_mib=TOTAL_MIB, context_mib=CONTEXT_MIB)
    plan = tmp_path_factory.mktemp("plan") / "plan.yaml"
    plan.write_text(PLAN)
    with watched([str(plan), "--device", "cuda"], checkpoint_cache, shared_machine.env()) as daemon:
        yield daemon


@pytest.fixture
def running(shared_machine, daemon):
    """The daemon, with a worker in good health; what a test does to the machine is undone after it."""
    good_cycle(daemon)
    yield daemon
    shared_machine.mend()
    shared_machine.configure(baseline_mib=0)


@pytest.fixture
def other(shared_machine):
    """Another process on the device."""
    console = shared_machine.console(RUNTIME)
    yield console
    console.kill()


def good_cycle(daemon):
    """Wait for a cycle that succeeds, from its start."""
    before = daemon.total(CYCLES, outcome="succeeded")
    daemon.wait_until("a good cycle", lambda scrape: scrape.total(CYCLES, outcome="succeeded") > before)


def failed_cycle(daemon, trouble):
    """Make trouble, and wait for the cycle that it fails; returns the fault that is shown."""
    before = daemon.total(CYCLES, outcome="failed")
    trouble()
    daemon.wait_until("a failed cycle", lambda scrape: scrape.total(CYCLES, outcome="failed") > before)
    return daemon.status()["faults"][-1]


def restarts(daemon):
    """How often the worker was started again, by reason, where it was."""
    series = daemon.samples()["vramscope_worker_restarts_total"]
    return Counter({dict(key)["reason"]: count for key, count in series.items() if count})


@pytest.mark.parametrize(
    ("function", "code", "reason"),
    [
        ("cudaMemcpyAsync", 710, "device-side assert triggered"),
        ("cudaDeviceSynchronize", 700, "an illegal memory access was encountered"),
    ],
)
def test_an_error_that_stays_costs_the_step_and_the_worker_and_nothing_else(
    shared_machine, running, function, code, reason
):
    pid, before, seen = running.worker_pid(), restarts(running), len(running.scrapes)
    failed_cycle(running, lambda: shared_machine.fail(function, code))
    shared_machine.mend()
    faults = [fault for fault in running.status()["faults"] if reason in fault["detail"]]
    assert [fault["what"] for fault in faults] in (["step there"], ["step back"])
    assert "CUDA failed and stays failed in this process" in faults[0]["detail"]

    good_cycle(running)
    assert restarts(running) - before == {"sticky_error": 1}
    assert running.worker_pid() != pid
    assert pid not in shared_machine.pids()[0]
    without_worker = [scrape for scrape in running.scrapes[seen:] if scrape.total("vramscope_worker_up") == 0]
    assert without_worker
    assert {scrape.total("vramscope_torch_allocated_bytes") for scrape in without_worker} == {None}


def test_out_of_memory_costs_the_step_and_not_the_worker(shared_machine, running):
    pid, before, ooms = running.worker_pid(), restarts(running), running.total("vramscope_torch_ooms_total")
    fault = failed_cycle(running, lambda: shared_machine.configure(baseline_mib=TOTAL_MIB - CONTEXT_MIB))
    shared_machine.configure(baseline_mib=0)
    assert fault["what"] == "step there"
    assert "out of memory" in fault["detail"]
    good_cycle(running)
    assert (running.worker_pid(), restarts(running)) == (pid, before)
    assert running.total("vramscope_torch_ooms_total") > ooms


def test_what_another_process_holds_is_its_own_in_the_ledger_and_in_the_reason_of_an_out_of_memory(
    shared_machine, running, other
):
    assert other.run(f"hold({3000 * MIB})") == 0
    shown = running.wait_until("the other's memory", lambda scrape: scrape.owners().get("other_processes"))
    owners = shown.owners()
    assert owners["other_processes"] == (3000 + CONTEXT_MIB) * MIB
    assert owners["cuda_context"] == CONTEXT_MIB * MIB
    assert sum(owners.values()) == TOTAL_MIB * MIB

    running.wait_until("the model in RAM", lambda scrape: scrape.total("vramscope_step_running", step="in RAM"))
    rest = TOTAL_MIB - shared_machine.used_mib()[0]
    fault = failed_cycle(running, lambda: other.run(f"assert hold({int(rest - 1) * MIB}) == 0"))
    assert fault["what"] == "step there"
    assert f"Process {other.pid} has" in fault["detail"]
    other.kill()
    good_cycle(running)
    assert running.scrapes[-1].owners()["other_processes"] == 0


def test_a_killed_worker_holds_nothing_and_a_device_too_full_for_a_context_is_out_of_memory(shared_machine, running):
    running.wait_until("the model there", lambda scrape: scrape.total("vramscope_step_running", step="on device"))
    pid, before = running.worker_pid(), restarts(running)
    assert shared_machine.pids() == [[pid]]
    fault = failed_cycle(running, lambda: os.kill(pid, signal.SIGKILL))
    assert "killed by SIGKILL" in fault["detail"]
    assert shared_machine.used_mib() == [0]

    fault = failed_cycle(running, lambda: shared_machine.configure(baseline_mib=TOTAL_MIB - CONTEXT_MIB + 1))
    assert fault["what"] == "step there"
    assert "out of memory" in fault["detail"]
    assert shared_machine.pids() == [[]]
    shared_machine.configure(baseline_mib=0)
    good_cycle(running)
    assert restarts(running) - before == {"signal": 1}
    assert shared_machine.pids() == [[running.worker_pid()]]


def test_a_hanging_driver_stops_neither_steps_nor_metrics(shared_machine, running):
    shared_machine.fail("nvml*", "hang:6")
    silent = running.wait_until("its silence", lambda scrape: scrape.total("vramscope_nvml_up") == 0)
    assert (silent.owners(), silent.total("vramscope_nvml_used_bytes")) == ({}, None), "unknown is left out"
    assert silent.total("vramscope_torch_reserved_bytes") is not None
    good_cycle(running)
    shared_machine.mend()
    running.wait_until("its answer", lambda scrape: scrape.total("vramscope_nvml_up") == 1 and scrape.owners())


# The last of those that look at this daemon.
def test_through_all_that_the_metrics_never_stopped_and_the_forecast_was_never_off(shared_machine, daemon):
    assert daemon.end() == 0
    assert daemon.refusals == []
    assert max(scrape.seconds for scrape in daemon.scrapes) < 1
    errors = [scrape.samples.get("vramscope_forecast_error_bytes", {}) for scrape in daemon.scrapes]
    assert {value for series in errors for value in series.values()} == {0}
    ledgers = [owners for scrape in daemon.scrapes if (owners := scrape.owners())]
    assert {sum(owners.values()) for owners in ledgers} == {TOTAL_MIB * MIB}
    assert shared_machine.used_mib() == [0]

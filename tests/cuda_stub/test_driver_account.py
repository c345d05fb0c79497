"""What a daemon on CUDA tells where the driver does not list its processes, lists them without sizes, or hangs."""

import signal
from pathlib import Path

import pytest
from tests.cuda_stub.watched_daemon import watched
from tests.daemon import wait_for

pytestmark = pytest.mark.cuda_stub

MIB = 1 << 20
CONTEXT_MIB, OTHERS_MIB = 113, 70
PLAN = """
version: 1
models: {tiny: {source: "synthetic:tiny"}}
repeat: forever
steps:
  - load: tiny
  - {move: tiny, name: there}
  - {wait: 3s, name: on device}
  - {move: {model: tiny, to: cpu}, name: back}
  - unload: tiny
"""
OWN = "vramscope_nvml_process_used_bytes"
MEASURED = "vramscope_nvml_process_used_measured"


@pytest.fixture(scope="module")
def daemon(shared_machine, checkpoint_cache, tmp_path_factory):
    """A daemon that opened its context where the driver lists no process of it, beside others' use."""
    shared_machine.configure(context_mib=CONTEXT_MIB, baseline_mib=OTHERS_MIB, processes="hidden")
    plan = tmp_path_factory.mktemp("plan") / "plan.yaml"
    plan.write_text(PLAN)
    with watched([str(plan), "--device", "cuda"], checkpoint_cache, shared_machine.env()) as daemon:
        yield daemon


@pytest.mark.parametrize(("processes", "measured"), [("hidden", 1), ("unsized", 1), ("listed", 0)])
def test_own_use_is_told_apart_from_others_and_says_how_it_is_known(shared_machine, daemon, processes, measured):
    shared_machine.configure(processes=processes)
    scrape = daemon.wait_until(
        "the account",
        lambda scrape: scrape.total("vramscope_torch_reserved_bytes") and scrape.total(MEASURED) == measured,
    )
    reserved = scrape.total("vramscope_torch_reserved_bytes")
    assert scrape.total(OWN) == reserved + CONTEXT_MIB * MIB
    owners = scrape.owners()
    assert (owners["cuda_context"], owners["other_processes"]) == (CONTEXT_MIB * MIB, OTHERS_MIB * MIB)


def test_card_is_named_by_torch_and_its_place_in_nvmls_list_is_told(daemon):
    [labels] = daemon.scrapes[-1].samples["vramscope_device_info"]
    assert {"device": "cuda:0", "backend": "cuda", "nvml_index": "0"}.items() <= dict(labels).items()


# The last of those that look at this daemon.
def test_driver_that_hangs_for_a_minute_costs_nothing_but_its_values(shared_machine, daemon):
    before = daemon.wait_until("an answer", lambda scrape: scrape.total("vramscope_nvml_up") == 1)
    threads = Path(f"/proc/{daemon.process.pid}/task")
    running = len(list(threads.iterdir()))
    shared_machine.fail("nvmlDevice*", "hang:60")
    silent = daemon.wait_until("its silence", lambda scrape: scrape.total("vramscope_nvml_up") == 0)
    answer = "vramscope_nvml_last_answer_timestamp_seconds"
    assert silent.total(answer) >= before.total(answer)
    for name in ("used", "total", "free", "process_used", "used_high_water"):
        assert silent.total(f"vramscope_nvml_{name}_bytes") is None
    [device] = daemon.status()["devices"]
    assert device["driver_error"].startswith("NVML has not answered for ")
    seen = len(daemon.scrapes)
    wait_for("twenty scrapes", lambda: len(daemon.scrapes) > seen + 20)
    assert max(scrape.seconds for scrape in daemon.scrapes[seen:]) < 1
    assert len(list(threads.iterdir())) <= running + 1
    assert daemon.end() == 0
    assert daemon.process.returncode != -signal.SIGKILL
    shared_machine.mend()

"""A plan for the second of two devices never touches the first, and a restart of the worker gives all of it back."""

import pytest
from tests.cuda_stub.watched_daemon import watched

pytestmark = pytest.mark.cuda_stub

MIB = 1 << 20
CONTEXT_MIB = 113
PLAN = """
version: 1
models:
  first: {source: "synthetic:tiny"}
  second: {source: "synthetic:tiny", dtype: float32}
device: cuda:1
steps:
  - load: first
  - move: first
  - expect: {torch_allocated: {above: 0}, process_used: {above: 113MiB}, device_used: {above: 113MiB}}
  - {load: {model: second, to: cuda:1}}
  - {move: {model: first, to: cpu}}
  - unload: first
  - unload: second
  - expect: {torch_allocated: {equals: 0}, torch_reserved: {above: 0}}
  - release
  - expect: {torch_reserved: {equals: 0}, process_used: {equals: 113MiB}}
  - expect: {device: cuda:0, torch_reserved: {equals: 0}, device_used: {equals: 0}}
  - {wait: 1500ms, name: with a context}
  - restart_worker
  - {wait: 1500ms, name: without a context}
"""


@pytest.fixture(scope="module")
def daemon(shared_machine, checkpoint_cache, tmp_path_factory):
    """The daemon after its only cycle, while every process on either device was watched."""
    shared_machine.configure(devices=2, context_mib=CONTEXT_MIB)
    shared_machine.watch()
    plan = tmp_path_factory.mktemp("plan") / "plan.yaml"
    plan.write_text(PLAN)
    with watched([str(plan), "--device", "cuda"], checkpoint_cache, shared_machine.env()) as daemon:
        daemon.wait_until("the plan's end", lambda _: daemon.status()["plan"]["outcome"], 100)
        yield daemon


def during(daemon, step):
    """The scrapes while a step ran, from its second half on: the driver is looked at once a second."""
    found = [scrape for scrape in daemon.scrapes if scrape.total("vramscope_step_running", step=step)]
    assert len(found) > 4
    return found[len(found) // 2 :]


def test_every_step_does_what_the_plan_expects(daemon):
    assert (daemon.status()["plan"]["outcome"], daemon.status()["faults"]) == ("succeeded", [])


def test_nobody_was_ever_seen_on_the_first_device(daemon, shared_machine):
    first, second = shared_machine.seen_pids()
    assert first == []
    assert len(second) == 1
    used = {scrape.total("vramscope_nvml_used_bytes", device="cuda:0") for scrape in daemon.scrapes}
    assert used - {None} == {0}


def test_ledgers_of_both_devices_are_whole(daemon):
    scrape = during(daemon, "with a context")[-1]
    first, second = scrape.owners("cuda:0"), scrape.owners("cuda:1")
    assert {owner: nbytes for owner, nbytes in first.items() if nbytes} == {"free": 12288 * MIB}
    assert {owner: nbytes for owner, nbytes in second.items() if nbytes} == {
        "cuda_context": CONTEXT_MIB * MIB,
        "free": (12288 - CONTEXT_MIB) * MIB,
    }


def test_restart_of_the_worker_gives_the_context_back(daemon, shared_machine):
    used = "vramscope_nvml_used_bytes"
    before, after = (during(daemon, step) for step in ("with a context", "without a context"))
    assert {scrape.total(used, device="cuda:1") for scrape in before} == {CONTEXT_MIB * MIB}
    assert {scrape.total(used, device="cuda:1") for scrape in after} == {0}
    assert {scrape.total("vramscope_nvml_process_used_bytes", device="cuda:1") for scrape in after} <= {0, None}
    assert shared_machine.used_mib() == [0, 0]
    assert daemon.total("vramscope_worker_restarts_total") == 0, "it was asked for"
    assert daemon.worker_pid() not in shared_machine.seen_pids()[1]

"""A model in parts on two devices of torch's CUDA build: as foreseen after every step, and given back from both."""

import pytest
from tests.cuda_stub.watched_daemon import watched

pytestmark = pytest.mark.cuda_stub

PLAN = """
version: 1
models:
  tiny: {source: "synthetic:tiny"}
device: cuda:0
repeat: 2
steps:
  - load: {model: tiny, to: cuda:0, layers: 0, components: [embedding]}
  - move: {model: tiny, to: cuda:1, layers: 1}
  - expect: {device: cpu, parameter_bytes: {above: 0}}
  - move: {model: tiny, to: cuda:1, components: [attention, norm]}
  - move: {model: tiny, to: cuda:0, components: [mlp]}
  - {wait: 300ms, name: in parts}
  - move: {model: tiny, to: cpu}
  - expect: {torch_allocated: {equals: 0}}
  - move: {model: tiny, to: cuda:1}
  - move: {model: tiny, to: cuda:0, layers: 0}
  - unload: tiny
  - release
  - expect: {torch_reserved: {equals: 0}}
  - expect: {device: cuda:1, torch_reserved: {equals: 0}}
"""


@pytest.fixture(scope="module")
def daemon(shared_machine, checkpoint_cache, tmp_path_factory):
    shared_machine.configure(devices=2)
    plan = tmp_path_factory.mktemp("plan") / "plan.yaml"
    plan.write_text(PLAN)
    with watched([str(plan), "--device", "cuda"], checkpoint_cache, shared_machine.env()) as daemon:
        daemon.wait_until("the plan's end", lambda _: daemon.status()["plan"]["outcome"], 100)
        yield daemon


def test_every_step_does_what_the_plan_expects(daemon):
    assert (daemon.status()["plan"]["outcome"], daemon.status()["faults"]) == ("succeeded", [])


def test_both_devices_have_had_what_was_foreseen_all_the_time(daemon):
    told = [scrape.samples.get("vramscope_forecast_error_bytes", {}) for scrape in daemon.scrapes]
    assert any(len(errors) == 4 for errors in told)
    assert {error for errors in told for error in errors.values()} == {0}
    assert [row["on_device"] == row["forecast"] for row in daemon.status()["results"]] == [True, True]

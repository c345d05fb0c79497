"""The proof of give-back, from outside: a tensor that somebody forgets is found, counted and told apart."""

import os
from pathlib import Path

import pytest
from tests.daemon import Daemon, wait_for

LEAK = Path(__file__).parents[1] / "leak"
LEAKED = 67_108_864
CYCLES = 6
PLAN = f"""
version: 1
name: leaking
models: {{m: {{source: "synthetic:tiny", dtype: float32}}}}
repeat: {CYCLES}
steps:
  - load: m
  - move: m
  - unload: m
  - release
"""


@pytest.fixture(scope="module", params=[False, True], ids=["sound", "leaking"])
def ended(request, cache, tmp_path_factory):
    """A daemon whose plan is over, and whether each of its unloads left a tensor behind."""
    plan = tmp_path_factory.mktemp("plan") / "plan.yaml"
    plan.write_text(PLAN)
    environment = {**os.environ, "PYTHONPATH": str(LEAK)} if request.param else None
    daemon = Daemon([str(plan), "--device", "simulated"], cache, environment)
    wait_for("the plan's end", lambda: daemon.status()["plan"]["outcome"])
    yield daemon, request.param
    daemon.stop()


def series(daemon, name):
    """A metric of the model's residue on the device, by its remaining label."""
    found = {}
    for labels, value in daemon.samples().get(name, {}).items():
        rest = dict(labels)
        if rest.pop("model") == "m" and rest.pop("where") == "cuda:0":
            found["".join(rest.values())] = value
    return found


def test_the_residue_is_what_was_forgotten_and_else_nothing(ended):
    daemon, leaks = ended
    assert series(daemon, "vramscope_residue_bytes") == {"": LEAKED if leaks else 0}
    causes = series(daemon, "vramscope_residue_cause_bytes")
    assert causes.pop("live_tensors") == (LEAKED if leaks else 0)
    assert causes == {"allocator_cache": 0, "context_growth": 0, "other_processes": 0}


def test_forgotten_tensors_are_told_by_their_size(ended):
    daemon, leaks = ended
    expected = {"10 to 100 MiB": LEAKED} if leaks else {}
    assert series(daemon, "vramscope_residue_live_tensor_bytes") == expected


def test_over_cycles_a_leak_grows_and_nothing_else_does(ended):
    daemon, leaks = ended
    assert series(daemon, "vramscope_residue_growth_bytes")[""] == pytest.approx(LEAKED if leaks else 0)


def test_the_ledger_has_the_forgotten_tensors_under_no_model(ended):
    daemon, leaks = ended
    owners = {dict(labels)["owner"]: value for labels, value in daemon.samples()["vramscope_ledger_bytes"].items()}
    assert owners["parameters"] == owners["buffers"] == 0
    assert owners["allocator_rounding"] == (CYCLES * LEAKED if leaks else 0)

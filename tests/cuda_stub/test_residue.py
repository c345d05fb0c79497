"""A tensor that is forgotten on a CUDA device is found, to the byte, among what torch's own allocator holds."""

from pathlib import Path

import pytest
from tests.cuda_stub.watched_daemon import watched

pytestmark = pytest.mark.cuda_stub

LEAK = Path(__file__).parents[1] / "leak"
LEAKED = 67_108_864
PLAN = """
version: 1
models: {m: {source: "synthetic:tiny", dtype: float32}}
device: cuda:1
repeat: 6
steps:
  - {load: {model: m, to: cuda:1}}
  - unload: m
  - release
"""


@pytest.mark.parametrize("leaks", [False, True])
def test_the_residue_is_what_was_forgotten_and_else_nothing(shared_machine, checkpoint_cache, tmp_path, leaks):
    shared_machine.configure(devices=2)
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    environment = shared_machine.env(**({"PYTHONPATH": str(LEAK)} if leaks else {}))
    with watched([str(plan), "--device", "cuda"], checkpoint_cache, environment) as daemon:
        daemon.wait_until("the plan's end", lambda _: daemon.status()["plan"]["outcome"], 100)
        last = daemon.wait_until("a scrape after it", lambda _: True)
    expected = LEAKED if leaks else 0
    assert last.total("vramscope_residue_bytes", where="cuda:1") == expected
    assert last.total("vramscope_residue_cause_bytes", where="cuda:1", cause="live_tensors") == expected
    assert last.total("vramscope_residue_growth_bytes", where="cuda:1") == pytest.approx(expected)
    assert last.total("vramscope_residue_bytes", where="cuda:0") == 0

"""Cycles of several models on two CUDA devices, in a daemon that is looked at all the time, from outside and inside."""

import pytest
from tests.benchmarks.long_run import run_several

pytestmark = [pytest.mark.cuda_stub, pytest.mark.timeout(240)]

CYCLES = 12


def test_ledgers_add_up_and_nothing_is_left_through_all_cycles(machine, checkpoint_cache, tmp_path):
    machine.configure(devices=2, context_mib=113)
    environment = machine.env(VRAMSCOPE_CACHE=str(checkpoint_cache))
    found, audit = run_several(tmp_path / "plan.yaml", CYCLES, ("--device", "cuda"), environment)
    assert found.problems == []
    assert found.sizes[-1].cycles == CYCLES
    assert found.settled > CYCLES // 2
    assert audit["ledgers"] > CYCLES * 2 * 10
    assert audit["residues"] == CYCLES * (3 + 3)
    assert machine.used_mib() == [0, 0]

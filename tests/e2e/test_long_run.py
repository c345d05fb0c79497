"""Cycles of several models in a daemon that is looked at all the time, from outside and inside."""

import os
from pathlib import Path

import pytest
from tests.benchmarks.long_run import SIMULATED, Watch, run_several

CYCLES = 12


@pytest.mark.timeout(240)
def test_ledgers_add_up_and_nothing_is_left_through_all_cycles(cache: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "VRAMSCOPE_CACHE": str(cache)}
    found, audit = run_several(tmp_path / "plan.yaml", CYCLES, SIMULATED, environment)
    assert found.problems == []
    assert found.sizes[-1].cycles == CYCLES
    assert found.settled > CYCLES // 2
    assert audit["ledgers"] > CYCLES * 2 * 10
    assert audit["residues"] == CYCLES * (3 + 3)


LABELS = (("collector", "ledger"),)
SOUND = {
    "vramscope_collector_success": {LABELS: 1.0},
    "vramscope_nvml_total_bytes": {(("device", "cuda:0"),): 100.0},
    "vramscope_ledger_bytes": {
        (("device", "cuda:0"), ("owner", "free")): 90.0,
        (("device", "cuda:0"), ("owner", "cuda_context")): 10.0,
    },
    "vramscope_step_running": {(("kind", "wait"), ("model", ""), ("step", "settled")): 1.0},
    "vramscope_residue_bytes": {(("model", "m"), ("where", "cuda:0")): 0.0},
}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, ""),
        ({"vramscope_collector_success": {LABELS: 0.0}}, "ledger failed"),
        ({"vramscope_nvml_total_bytes": {(("device", "cuda:0"),): 101.0}}, "adds up to 100, not to 101"),
        ({"vramscope_residue_bytes": {(("model", "m"), ("where", "cuda:0")): 512.0}}, "left 512 bytes"),
    ],
)
def test_what_is_wrong_on_a_page_is_noticed(change, problem: str) -> None:
    watch = Watch()
    watch.check(SOUND | change, 9)
    assert [problem in found for found in watch.problems] == ([True] if problem else [])
    assert (watch.scrapes, watch.settled, list(watch.series)) == (1, 1, [6])

"""A short fault run: each kind of fault once; `make chaos` is the long one."""

from pathlib import Path

import pytest
from tests.chaos.faults import FAULTS
from tests.chaos.journal import JOURNAL_FAULTS
from tests.chaos.run import run

CYCLES, SEED = 20, 8
# A busy machine may be late; that no scrape waits for what is broken is what counts here.
SLOWEST_SECONDS = 15.0


@pytest.mark.timeout(400)
def test_a_daemon_survives_each_kind_of_fault_and_loses_no_cycle(cache: Path) -> None:
    verdict = run(CYCLES, 1, SEED, cache)
    assert verdict.problems == []
    assert {fault.__name__ for fault in (*FAULTS, *JOURNAL_FAULTS)} <= set(verdict.survived)
    assert sum(verdict.outcomes.values()) >= CYCLES
    assert verdict.outcomes["failed"] >= 2, "a killed and a stopped worker each cost a cycle"
    assert verdict.dropped, "a full disk costs events where few may wait"
    assert verdict.slowest_seconds < SLOWEST_SECONDS

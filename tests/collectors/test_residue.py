import pytest

from vramscope.collectors.residue import ResidueMetrics
from vramscope.events import WorkerExited

from ..picture import STARTED_AT, left_behind, until_on_device  # noqa: TID252 - tests are not packages

LEAKED = 64 << 20


def growth(text):
    values = [
        line for line in text.splitlines() if line.startswith("vramscope_residue_growth_bytes") and "cuda:0" in line
    ]
    return float(values[0].split()[-1]) if values else None


def test_the_residue_stays_until_the_plan_no_longer_names_the_model(page):
    assert "vramscope_residue_bytes" in page.of(ResidueMetrics, left_behind(), until_on_device())
    assert page.without_models().of(ResidueMetrics) == ""


def test_what_was_found_is_told_by_cause_and_size(page):
    text = page.of(ResidueMetrics, left_behind(live=LEAKED, cache=0))
    assert 'vramscope_residue_bytes{model="qwen",where="cuda:0"} 6.7108864e+07' in text
    assert 'cause_bytes{cause="live_tensors",model="qwen",where="cuda:0"} 6.7108864e+07' in text
    assert 'live_tensor_bytes{model="qwen",size="10 to 100 MiB",where="cuda:0"} 6.7108864e+07' in text


def test_growth_is_told_from_the_fifth_unload_on_and_begins_anew_with_a_worker(page):
    told = [growth(page.of(ResidueMetrics, left_behind(live=count * LEAKED))) for count in range(6)]
    assert told[:4] == [None] * 4
    assert told[4:] == [pytest.approx(LEAKED)] * 2
    gone = WorkerExited(at=STARTED_AT, pid=17, reason="signal", detail="killed", expected=False)
    assert growth(page.of(ResidueMetrics, [gone])) is None

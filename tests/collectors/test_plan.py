from vramscope.collectors.plan import PlanMetrics

from ..picture import STARTED_AT, back_and_gone, until_on_device  # noqa: TID252 - tests are not packages


def test_a_cycle_that_succeeded_is_counted_timed_and_dated(page):
    text = page.of(PlanMetrics, until_on_device(), back_and_gone())
    assert 'vramscope_cycles_total{outcome="succeeded"} 1.0' in text
    assert "vramscope_cycle_last_duration_seconds 18.0" in text
    dated = next(line for line in text.splitlines() if "timestamp" in line)
    assert float(dated.split()[1]) == STARTED_AT + 23


def test_durations_are_absent_until_a_cycle_has_ended(page):
    text = page.of(PlanMetrics, until_on_device())
    assert "vramscope_cycle_last" not in text
    assert 'vramscope_cycles_total{outcome="failed"} 0.0' in text

from vramscope.collectors.plan import PlanMetrics
from vramscope.events import PlanReloaded, PlanReloadFailed, PlanStarted

from ..picture import STARTED_AT, back_and_gone, until_on_device  # noqa: TID252 - tests are not packages


def test_a_cycle_that_succeeded_is_counted_timed_and_dated(page):
    text = page.of(PlanMetrics, until_on_device(), back_and_gone())
    assert 'vramscope_cycles_total{outcome="succeeded"} 1.0' in text
    assert "vramscope_cycle_last_duration_seconds 18.0" in text
    dated = next(line for line in text.splitlines() if "success_timestamp" in line and "cycle" in line)
    assert float(dated.split()[1]) == STARTED_AT + 23


def test_durations_are_absent_until_a_cycle_has_ended(page):
    text = page.of(PlanMetrics, until_on_device())
    assert "vramscope_cycle_last" not in text
    assert 'vramscope_cycles_total{outcome="failed"} 0.0' in text


def test_a_bad_plan_file_is_0_until_a_good_one_is_read_and_the_last_good_one_keeps_its_date(page):
    bad = PlanReloadFailed(at=STARTED_AT + 30, problem="plan.yaml:3:5: expected one of load, move")
    good = PlanReloaded(at=STARTED_AT + 40, sha256="cd" * 32, is_new=True)
    started = page.of(PlanMetrics, until_on_device())
    assert "vramscope_plan_last_reload_success 1.0" in started
    failed = page.of(PlanMetrics, [bad])
    assert "vramscope_plan_last_reload_success 0.0" in failed
    (before, *_), (after, *_) = (
        [line for line in text.splitlines() if "reload_success_timestamp" in line] for text in (started, failed)
    )
    assert before == after
    mended = page.of(PlanMetrics, [good])
    assert "vramscope_plan_last_reload_success 1.0" in mended
    assert before not in mended


def test_a_new_plan_takes_what_it_does_not_name_off_the_page(page):
    page.tell([until_on_device(), back_and_gone()], lambda _: None)
    state = page.store.state
    assert state.last_steps
    assert state.last_phases
    page.tell([[PlanStarted(at=STARTED_AT + 30, plan="other", sha256="", path="", cycles=1)]], lambda _: None)
    state = page.store.state
    assert (state.last_steps, state.last_phases, state.residues, state.levels) == ({}, {}, {}, {})

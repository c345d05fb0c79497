from vramscope.collectors.steps import Steps
from vramscope.events import Outcome

from ..picture import back_and_gone, running, step, until_on_device  # noqa: TID252 - tests are not packages


def test_last_results_vanish_when_the_plan_no_longer_names_model_or_step_while_counts_stay(page):
    page.of(Steps, until_on_device(), back_and_gone())
    text = page.without_models().of(Steps)
    assert "last_duration" not in text
    assert "vramscope_tokens" not in text
    assert "vramscope_phase_bytes" not in text
    assert "vramscope_step_runs_total" in text


def test_a_step_without_a_model_is_shown_while_the_plan_has_it(page):
    text = page.of(Steps, back_and_gone())
    assert 'vramscope_step_last_duration_seconds{kind="release",model="",step="release"} 0.01' in text


def test_only_the_running_step_has_a_series(page):
    assert page.of(Steps, until_on_device(), running()).count("vramscope_step_running{") == 1
    assert "vramscope_step_running" not in page.of(Steps, back_and_gone())


def test_a_phase_without_bytes_has_a_duration_and_neither_bytes_nor_progress(page):
    text = page.of(Steps, step(1.0, "load", 1.0, phases=[("resolve", 0.5, None)]))
    assert "vramscope_phase_last_duration_seconds" in text
    assert "vramscope_phase_bytes" not in text
    assert "vramscope_step_progress_ratio" not in text


def test_failures_are_counted_apart_and_their_time_is_observed(page):
    text = page.of(Steps, step(1.0, "load", 400.0, outcome=Outcome.TIMED_OUT))
    assert 'vramscope_step_runs_total{kind="load",outcome="timed_out"} 1.0' in text
    assert 'vramscope_step_duration_seconds_bucket{kind="load",le="300.0"} 0.0' in text
    assert 'vramscope_step_duration_seconds_bucket{kind="load",le="600.0"} 1.0' in text


def test_tokens_that_are_no_number_are_left_out(page):
    assert "vramscope_tokens" not in page.of(Steps, step(1.0, "tokenize", 1.0, facts={"tokens": None}))


def test_a_step_that_ends_between_two_scrapes_is_on_the_second(page):
    collector = Steps(page.sources)

    def runs() -> list[float]:
        return [sample.value for family in collector.collect() for sample in family.samples if _is_load(sample)]

    assert sum(runs()) == 0
    for count in (1, 2):
        for event in step(1.0, "load", 400.0):
            collector.on_event(event)
        assert sum(runs()) == sum(runs()) == count


def _is_load(sample):
    return sample.name == "vramscope_step_runs_total" and sample.labels["kind"] == "load"

from vramscope.collectors.worker import Worker
from vramscope.events import Outcome, WorkerExited

from ..picture import STARTED_AT, step, until_on_device  # noqa: TID252 - tests are not packages


def ended(*, expected):
    return WorkerExited(at=STARTED_AT + 9, pid=17, reason="signal", detail="killed by SIGKILL", expected=expected)


def test_an_unasked_end_counts_as_a_restart_and_its_memory_is_gone(page):
    text = page.of(Worker, until_on_device(), [ended(expected=False)])
    assert 'vramscope_worker_restarts_total{reason="signal"} 1.0' in text
    assert 'vramscope_worker_restarts_total{reason="exit"} 0.0' in text
    assert "vramscope_worker_up 0.0" in text
    assert "worker_resident" not in text


def test_an_end_that_was_asked_for_is_no_restart(page):
    assert 'restarts_total{reason="signal"} 0.0' in page.of(Worker, until_on_device(), [ended(expected=True)])


def test_nothing_is_claimed_about_a_worker_that_was_not_ready_yet(page):
    text = page.of(Worker)
    assert "vramscope_worker_up 0.0" in text
    assert "vramscope_worker_info" not in text


def test_the_peak_of_the_last_good_load_stays_while_the_plan_names_the_model(page):
    peak = "vramscope_worker_load_peak_bytes"

    def load(at, name, facts, outcome=Outcome.SUCCEEDED):
        return step(at, "load", 1.0, name=name, facts=facts, outcome=outcome)

    two = [
        *load(STARTED_AT + 9, "b", {"resident_peak_bytes": 7}),
        *load(STARTED_AT + 20, "a", {"resident_peak_bytes": 5}),
    ]
    assert f'{peak}{{model="qwen"}} 5.0' in page.of(Worker, until_on_device(), two)
    failed = load(STARTED_AT + 30, "c", {}, Outcome.FAILED)
    assert f'{peak}{{model="qwen"}} 5.0' in page.of(Worker, failed, [ended(expected=False)])
    unknown = load(STARTED_AT + 40, "a", {"resident_peak_bytes": None})
    assert f'{peak}{{model="qwen"}} 7.0' in page.of(Worker, unknown)
    assert peak not in page.without_models().of(Worker)

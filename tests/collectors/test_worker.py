from vramscope.collectors.worker import Worker
from vramscope.events import WorkerExited

from ..picture import STARTED_AT, until_on_device  # noqa: TID252 - tests are not packages


def ended(*, expected):
    return WorkerExited(at=STARTED_AT + 9, pid=17, reason="signal", detail="killed by SIGKILL", expected=expected)


def test_an_unasked_end_counts_as_a_restart_and_its_memory_is_gone(page):
    text = page.of(Worker, until_on_device(), [ended(expected=False)])
    assert 'vramscope_worker_restarts_total{reason="signal"} 1.0' in text
    assert 'vramscope_worker_restarts_total{reason="exit"} 0.0' in text
    assert "vramscope_worker_up 0.0" in text
    assert "resident" not in text


def test_an_end_that_was_asked_for_is_no_restart(page):
    assert 'restarts_total{reason="signal"} 0.0' in page.of(Worker, until_on_device(), [ended(expected=True)])


def test_nothing_is_claimed_about_a_worker_that_was_not_ready_yet(page):
    text = page.of(Worker)
    assert "vramscope_worker_up 0.0" in text
    assert "vramscope_worker_info" not in text

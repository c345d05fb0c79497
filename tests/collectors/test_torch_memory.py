from vramscope.collectors.torch_memory import TorchMemory
from vramscope.events import WorkerExited

from ..picture import until_on_device  # noqa: TID252 - tests are not packages


def test_retries_and_ooms_are_counters(page):
    whole = page.whole(until_on_device()).decode()
    assert "# TYPE vramscope_torch_alloc_retries_total counter" in whole
    assert "# TYPE vramscope_torch_ooms_total counter" in whole


def test_without_a_worker_nothing_is_known(page):
    ended = WorkerExited(at=1.0, pid=17, reason="exit", detail="ended", expected=False)
    assert page.of(TorchMemory, until_on_device(), [ended]) == ""

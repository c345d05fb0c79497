import logging

import pytest
from prometheus_client import Counter
from prometheus_client.core import GaugeMetricFamily

from vramscope.collectors._frame import Guarded, counted, gauge
from vramscope.events import Event


class Working:
    def collect(self):
        yield GaugeMetricFamily("works", "Works.", value=1)


class Breakable:
    """Fails for as long as it is told to."""

    def __init__(self):
        self.broken = True
        self.seen = 0

    def collect(self):
        yield GaugeMetricFamily("breakable", "Breaks.", value=1)
        if self.broken:
            raise RuntimeError("broken")

    def on_event(self, _event):
        if self.broken:
            raise RuntimeError("broken")
        self.seen += 1


def values(guarded):
    return {
        (sample.name, sample.labels.get("collector")): sample.value
        for family in guarded.collect()
        for sample in family.samples
    }


def test_a_raising_collector_loses_only_its_own_series():
    page = values(Guarded({"breakable": Breakable(), "working": Working()}))
    assert ("breakable", None) not in page
    assert page["works", None] == 1
    assert page["vramscope_collector_success", "breakable"] == 0
    assert page["vramscope_collector_success", "working"] == 1


def test_the_duration_is_there_for_working_and_failing_collectors():
    ticks = iter([1.0, 1.5, 2.0, 2.25])
    page = values(Guarded({"breakable": Breakable(), "working": Working()}, timer=lambda: next(ticks)))
    assert page["vramscope_collector_duration_seconds", "breakable"] == 0.5
    assert page["vramscope_collector_duration_seconds", "working"] == 0.25


def test_a_fault_is_logged_once_until_the_collector_has_worked_again(caplog):
    collector = Breakable()
    guarded = Guarded({"breakable": collector})
    with caplog.at_level(logging.ERROR):
        values(guarded)
        values(guarded)
        assert [record.getMessage() for record in caplog.records] == ["collector_failed"]
        assert caplog.records[0].exc_info
        collector.broken = False
        assert values(guarded)["vramscope_collector_success", "breakable"] == 1
        collector.broken = True
        values(guarded)
    assert len(caplog.records) == 2


def test_an_event_that_cannot_be_counted_shows_on_the_next_page_only_and_reaches_the_others(caplog):
    collector, healthy = Breakable(), Breakable()
    healthy.broken = False
    guarded = Guarded({"breakable": collector, "healthy": healthy})
    with caplog.at_level(logging.ERROR):
        guarded.on_event(Event(at=1.0))
        guarded.on_event(Event(at=2.0))
    assert healthy.seen == 2
    assert len(caplog.records) == 1
    collector.broken = False
    page = values(guarded)
    assert page["breakable", None] == 1
    assert page["vramscope_collector_success", "breakable"] == 0
    assert values(guarded)["vramscope_collector_success", "breakable"] == 1


@pytest.mark.parametrize(
    ("labels", "value"), [(["text"], "1"), ([None], 1.0), (["\ud800"], 1.0)], ids=["value", "label", "text"]
)
def test_what_cannot_be_written_out_is_the_fault_of_its_collector(labels, value, caplog):
    class Odd:
        def collect(self):
            family = GaugeMetricFamily("odd", "Odd.", labels=["label"])
            family.add_metric(labels, value)
            yield family

    with caplog.at_level(logging.ERROR):
        page = values(Guarded({"odd": Odd(), "working": Working()}))
    assert page["vramscope_collector_success", "odd"] == 0
    assert page["works", None] == 1


def test_a_family_without_samples_is_left_out():
    class Empty:
        def collect(self):
            yield gauge("empty", "Empty.", [], [])

    assert "empty" not in {family.name for family in Guarded({"empty": Empty()}).collect()}


def test_unknown_is_absent():
    family = gauge("some", "Some.", ["device"], [(["a"], None), (["b"], 0)])
    assert [(sample.labels, sample.value) for sample in family.samples] == [({"device": "b"}, 0)]


def test_counters_are_yielded_without_their_time_of_creation():
    counter = Counter("things_total", "Things.", registry=None)
    assert [sample.name for family in counted(counter) for sample in family.samples] == ["things_total"]

from vramscope.events import CycleStarted, StepProgressed
from vramscope.journal.thinning import Thinner
from vramscope.memory.host import HostSampled

from ..picture import HOST_MEMORY, sample  # noqa: TID252 - tests are not packages


def passed(events, thinner=None):
    thinner = thinner or Thinner(10.0)
    return [each for event in events for each in thinner.pass_on(event)]


def samples(*times):
    return [sample(at, None) for at in times]


def happened(at):
    return CycleStarted(at=at, cycle=1)


def test_of_samples_the_first_one_each_interval_and_the_last_before_something_happens_are_kept():
    events = [*samples(0, 1, 9, 10, 11, 12), happened(13), *samples(14, 15), happened(16)]
    assert [each.at for each in passed(events)] == [0, 10, 12, 13, 14, 15, 16]


def test_a_sample_that_was_asked_for_before_something_happened_does_not_keep_the_next_one_back():
    assert [each.at for each in passed([happened(13), *samples(12, 14, 15)])] == [13, 12, 14]


def test_each_kind_of_sample_has_its_own_interval_and_the_order_stays():
    events = []
    for at in range(25):
        events += [sample(at, None), HostSampled(at=at + 0.5, memory=HOST_MEMORY)]
    found = passed(events)
    assert [each.at for each in found] == sorted(each.at for each in found)
    assert sum(isinstance(each, HostSampled) for each in found) in range(3, 6)


def test_a_clock_that_is_set_back_silences_nothing():
    assert [each.at for each in passed(samples(100, 50, 51))] == [100, 50]


def test_progress_is_not_kept_and_disturbs_nothing():
    progress = StepProgressed(at=1.5, step="s", kind="load", model="m", phase="read", bytes_done=1, bytes_total=2)
    assert [each.at for each in passed([*samples(1), progress, *samples(2)])] == [1]


def test_at_the_end_nothing_is_held_back():
    thinner = Thinner(10.0)
    passed(samples(1, 2), thinner)
    assert [each.at for each in thinner.release()] == [2]

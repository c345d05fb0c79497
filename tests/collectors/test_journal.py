from vramscope.collectors.journal import Journal
from vramscope.events import JournalSampled

from ..picture import STARTED_AT, until_on_device  # noqa: TID252 - tests are not packages


def journal(reason):
    return [JournalSampled(at=STARTED_AT, reason=reason, written=41, dropped=3)]


def test_without_a_journal_there_is_nothing_to_say(page):
    assert page.of(Journal, until_on_device()) == ""


def test_it_tells_whether_the_journal_is_written_and_what_is_in_it(page):
    assert page.of(Journal, journal("")) == (
        "vramscope_journal_up 1.0\n"
        "vramscope_journal_events_written_total 41.0\n"
        "vramscope_journal_events_dropped_total 3.0\n"
    )
    assert "vramscope_journal_up 0.0" in page.of(Journal, journal("No space left on device"))


def test_a_fault_of_the_journal_is_a_fault_of_the_run_once(page):
    page.of(Journal, journal(""), journal("full"), journal("full"), journal(""), journal("full"))
    assert [(fault.what, fault.detail) for fault in page.store.state.faults] == [("journal", "full")] * 2

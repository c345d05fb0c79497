import errno
import threading

import pytest

from vramscope.report.aside import Aside


def fail(error):
    raise error


def test_what_is_asked_is_done_in_order_and_before_the_end():
    done, aside = [], Aside()
    for number in range(100):
        aside.do(lambda number=number: done.append(number))
    assert aside.close()
    assert done == list(range(100))
    assert not aside.is_broken


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (BrokenPipeError(), ""),
        (SystemExit(1), ""),
        (OSError(errno.ENOSPC, "No space left on device"), "No space left on device"),
    ],
)
def test_where_nothing_can_be_written_any_more_the_rest_is_dropped(error, why):
    done, aside = [], Aside()
    aside.do(lambda: fail(error))
    aside.do(lambda: done.append(1))
    assert aside.close()
    assert (done, aside.is_broken, aside.why) == ([], True, why)


def test_a_write_that_is_stuck_is_told():
    aside, go_on = Aside(), threading.Event()
    aside.do(go_on.wait)
    assert not aside.close()
    go_on.set()

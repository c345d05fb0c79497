import threading

import pytest

from vramscope.errors import StepCancelledError, StepError
from vramscope.loading.abandonable import abandonable


def cancelled():
    raise StepCancelledError("the test asked to stop")


def test_what_the_work_returns_comes_back():
    assert abandonable(lambda: 7, lambda: None) == 7


def test_what_the_work_raises_is_raised():
    with pytest.raises(ZeroDivisionError):
        abandonable(lambda: 1 // 0, lambda: None)


def test_a_timeout_inside_the_work_is_its_own_and_not_ours():
    def work():
        raise TimeoutError("of the work")

    with pytest.raises(TimeoutError, match="of the work"):
        abandonable(work, lambda: None)


def test_work_that_does_not_end_is_left_when_the_step_is_cancelled():
    end = threading.Event()
    with pytest.raises(StepCancelledError):
        abandonable(end.wait, cancelled)
    end.set()


def test_a_panic_is_an_error_of_the_step_and_ends_no_process():
    class PanicException(BaseException):  # as libraries in Rust raise it: no Exception
        pass

    def work():
        raise PanicException("index out of range")

    with pytest.raises(StepError, match="a library gave up: index out of range"):
        abandonable(work, lambda: None)

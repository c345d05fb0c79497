import pytest

from vramscope.doctor._frame import State
from vramscope.doctor.clock import UNSYNCHRONIZED, _kernel_state, judge

INSTALLED = 1_800_000_000.0


@pytest.mark.parametrize(
    ("now", "kernel", "state"),
    [
        (INSTALLED + 3600, 0, State.OK),
        (INSTALLED - 3600, 0, State.OK),  # a checkout a moment ago, on another machine
        (INSTALLED + 3600, None, State.OK),
        (INSTALLED + 3600, UNSYNCHRONIZED, State.NOTE),
        (0.0, 0, State.WARNING),  # a board without a battery
        (INSTALLED * 4, 0, State.WARNING),
    ],
)
def test_what_a_time_means(now, kernel, state):
    assert judge(now, INSTALLED, kernel).state is state


def test_the_kernel_is_asked_and_not_set():
    assert _kernel_state() in {None, *range(6)}

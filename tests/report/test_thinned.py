import pytest

from vramscope.report.thinned import Spread, Thinned


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 100, 1001])
def test_no_more_than_the_limit_is_kept_and_the_largest_is_among_it(count):
    kept = Thinned(8, max)
    for number in range(count):
        kept.add(number)
    assert len(kept) <= 8
    assert list(kept) == sorted(kept)
    if count:
        assert max(kept) == count - 1
        assert len(kept) >= min(count, 4)


def test_a_peak_anywhere_stays():
    for peak in range(50):
        kept = Thinned(4, max)
        for number in range(50):
            kept.add(99 if number == peak else 0)
        assert max(kept) == 99


def test_a_spread_knows_its_ends_its_middle_and_whether_it_knows_enough():
    spread = Spread()
    assert (spread.median, spread.middle) == (None, None)
    for value in (5.0, 1.0):
        spread.add(value)
    assert spread.middle is None
    for value in (2.0, 3.0, 4.0):
        spread.add(value)
    assert (spread.count, spread.least, spread.median, spread.most) == (5, 1.0, 3.0, 5.0)
    assert spread.middle == (2.0, 4.0)


def test_a_long_spread_stays_small_and_true():
    spread = Spread()
    for number in range(100_000):
        spread.add(number % 100)
    assert spread.count == 100_000
    assert 30 < spread.median < 70

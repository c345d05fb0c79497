import pytest

from vramscope.report.sizes import exact, mib, percent, rate, seconds


@pytest.mark.parametrize("show", [mib, exact, seconds])
def test_unknown_is_a_dash(show):
    assert show(None) == "-"


def test_mib_have_one_decimal_and_bytes_every_digit():
    assert mib(1_158_676_480) == "1,105.0 MiB"
    assert exact(1_158_676_480) == "1,158,676,480"


def test_a_rate_names_its_unit_and_is_unknown_without_time():
    assert rate(988_065_536, 0.5) == "1,884.6 MiB/s"
    assert rate(1, 0.0) == "-"


def test_a_share_that_is_there_is_never_nothing():
    assert [percent(part, 1000) for part in (0, 1, 500, 1000)] == ["0.0 %", "0.1 %", "50.0 %", "100.0 %"]
    assert percent(1, 10**9) == "< 0.1 %"
    assert percent(None, 5) == percent(5, None) == percent(5, 0) == "-"

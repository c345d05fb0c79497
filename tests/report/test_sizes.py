import pytest

from vramscope.report.sizes import exact, mib, rate, seconds


@pytest.mark.parametrize("show", [mib, exact, seconds])
def test_unknown_is_a_dash(show):
    assert show(None) == "-"


def test_mib_have_one_decimal_and_bytes_every_digit():
    assert mib(1_158_676_480) == "1,105.0 MiB"
    assert exact(1_158_676_480) == "1,158,676,480"


def test_a_rate_names_its_unit_and_is_unknown_without_time():
    assert rate(988_065_536, 0.5) == "1,884.6 MiB/s"
    assert rate(1, 0.0) == "-"

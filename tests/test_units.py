import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vramscope.units import (
    MAX_BYTES,
    MAX_SECONDS,
    format_bytes,
    format_count,
    format_exactly,
    format_seconds,
    parse_bytes,
    parse_count,
    parse_seconds,
    shown,
)

BYTES = {
    "10GB": 10_000_000_000,
    "10GiB": 10_737_418_240,
    "10G": 10_000_000_000,
    "10Gi": 10_737_418_240,
    "512MiB": 512 * 2**20,
    "512 MiB": 512 * 2**20,
    "1.5GiB": 3 * 2**29,
    ".5KiB": 512,
    "0.1GiB": 107_374_182,
    "4kB": 4000,
    "4KB": 4000,
    "4k": 4000,
    "4KiB": 4096,
    "1024": 1024,
    "1024B": 1024,
    " 1024 ": 1024,
    "0": 0,
    "1e6": 1_000_000,
    "1.0e6": 1_000_000,
    "1.e+6": 1_000_000,
    "1_000": 1000,
    "7PiB": 7 * 2**50,
    "2T": 2 * 10**12,
    1_048_576: 1_048_576,
    1e6: 1_000_000,
    0: 0,
    2**63 - 1: 2**63 - 1,
}


@pytest.mark.parametrize(("value", "nbytes"), BYTES.items(), ids=repr)
def test_a_size_is_read_in_decimal_or_binary_units(value, nbytes):
    assert parse_bytes(value) == nbytes
    assert type(parse_bytes(value)) is int


EXPECTED_SIZE = "expected a size such as 512MiB, 10GB or 1048576, got "
BAD_BYTES = [
    ("-1GB", '"-1GB"'),
    (-1, "the number -1: a size is never negative"),
    ("10GBB", '"10GBB"'),
    ("GB", '"GB"'),
    ("", '""'),
    ("1,000MB", '"1,000MB"'),
    ("inf", '"inf"'),
    ("nan", '"nan"'),
    (math.inf, "the number inf"),
    (math.nan, "the number nan"),
    ("\uff11\uff10GB", '"\uff11\uff10GB"'),
    ("10Gb", '"10Gb" (did you mean "GB"?)'),
    ("10gb", '"10gb" (did you mean "GB"?)'),
    ("10mib", '"10mib" (did you mean "MiB"?)'),
    ("10m", '"10m" (did you mean "MB"?)'),
    ("10 parsecs", '"10 parsecs"'),
    ("1__0", '"1__0"'),
    ("99999999999999999999GB", '"99999999999999999999GB": larger than 8 EiB'),
    ("1e999", '"1e999": larger than 8 EiB'),
    ("1e9999", '"1e9999"'),
    ("1" * 5000, '"' + "1" * 39 + '…"'),
    (2**300, "the number of 301 bits: larger than 8 EiB"),
    (1.5, "the number 1.5: a part of a byte"),
    ("1.5B", '"1.5B": a part of a byte'),
    ("1.5", '"1.5": a part of a byte'),
    (True, "true"),
    (None, "nothing"),
    ([1], "a list"),
    ({}, "a mapping"),
]


@pytest.mark.parametrize(("value", "got"), BAD_BYTES, ids=lambda value: repr(value)[:30])
def test_what_is_no_size_is_refused_with_what_was_expected(value, got):
    with pytest.raises(ValueError, match=f"^{re.escape(EXPECTED_SIZE + got)}$"):
        parse_bytes(value)


SECONDS = {
    "30s": 30.0,
    "30 s": 30.0,
    "5m": 300.0,
    "1h30m": 5400.0,
    "1h 30m": 5400.0,
    "1d": 86400.0,
    "250ms": 0.25,
    "1s500ms": 1.5,
    "10us": 1e-5,
    "1.5h": 5400.0,
    "2": 2.0,
    "1e3": 1000.0,
    2: 2.0,
    0.5: 0.5,
    0: 0.0,
    "0s": 0.0,
    "366d": 366 * 86400.0,
}


@pytest.mark.parametrize(("value", "seconds"), SECONDS.items(), ids=repr)
def test_a_duration_is_read_as_seconds(value, seconds):
    assert parse_seconds(value) == seconds
    assert type(parse_seconds(value)) is float


EXPECTED_DURATION = "expected a duration such as 250ms, 30s, 5m or 1h30m, got "
BAD_SECONDS = [
    ("-1s", '"-1s"'),
    (-1, "the number -1: a duration is never negative"),
    (math.inf, "the number inf"),
    (math.nan, "the number nan"),
    ("inf", '"inf"'),
    ("soon", '"soon"'),
    ("", '""'),
    ("s", '"s"'),
    ("5M", '"5M"'),
    ("30m1h", '"30m1h"'),
    ("1m1m", '"1m1m"'),
    ("1h30", '"1h30"'),
    ("10:30", '"10:30"'),
    ("367d", '"367d": longer than 366 days'),
    (1e300, "the number 1e+300: longer than 366 days"),
    (True, "true"),
    (None, "nothing"),
]


@pytest.mark.parametrize(("value", "got"), BAD_SECONDS, ids=lambda value: repr(value)[:30])
def test_what_is_no_duration_is_refused_with_what_was_expected(value, got):
    with pytest.raises(ValueError, match=f"^{re.escape(EXPECTED_DURATION + got)}$"):
        parse_seconds(value)


@pytest.mark.parametrize("value", [3, "3", 3.0, "3.0", "0.3e1"])
def test_a_count_is_any_spelling_of_a_whole_number(value):
    assert parse_count(value) == 3


@pytest.mark.parametrize(
    ("value", "got"),
    [
        (0, "the number 0"),
        (-3, "the number -3"),
        (1.5, "the number 1.5"),
        (True, "true"),
        ("many", '"many"'),
        (math.inf, "the number inf"),
        (1e300, "the number 1e+300"),
        (2**63, "the number 9223372036854775808"),
    ],
)
def test_what_is_no_count_is_refused(value, got):
    with pytest.raises(ValueError, match=f"^{re.escape('expected a whole number of 1 or more, got ' + got)}$"):
        parse_count(value)


@pytest.mark.parametrize(
    ("nbytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.00 KiB"),
        (996_000_000, "949.9 MiB"),
        (1_556_925_644, "1.45 GiB"),
        (2**30 - 1, "1.00 GiB"),
        (102_395, "100.0 KiB"),
        (2**63, "8.00 EiB"),
        (-2048, "-2.00 KiB"),
        (-1, "-1 B"),
    ],
)
def test_a_size_is_shown_with_its_unit(nbytes, text):
    assert format_bytes(nbytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 ms"),
        (0.25, "250 ms"),
        (0.9996, "1.00 s"),
        (1.234, "1.23 s"),
        (12.34, "12.3 s"),
        (59.96, "1m 0s"),
        (307, "5m 7s"),
        (5400, "1h 30m 0s"),
    ],
)
def test_a_duration_is_shown_with_its_units(seconds, text):
    assert format_seconds(seconds) == text


def test_a_count_is_shown_with_its_thousands_apart():
    assert format_count(494_032_768) == "494,032,768"


@given(st.integers(0, MAX_BYTES))
def test_bytes_survive_being_written_and_read(nbytes):
    assert parse_bytes(str(nbytes)) == parse_bytes(nbytes) == parse_bytes(f"{nbytes} B") == nbytes


@given(st.integers(0, 8 * 2**60 - 2**54))
def test_a_shown_size_reads_as_nearly_the_same_size(nbytes):
    shown_size = format_bytes(nbytes)
    if "EiB" not in shown_size:
        assert math.isclose(parse_bytes(shown_size), nbytes, rel_tol=0.0051)


@given(st.floats(0, MAX_SECONDS))
def test_a_shown_duration_reads_as_nearly_the_same_duration(seconds):
    assert math.isclose(parse_seconds(format_seconds(seconds)), seconds, rel_tol=0.01, abs_tol=1e-6)


@given(st.floats(0, MAX_SECONDS))
def test_seconds_survive_being_written_and_read(seconds):
    assert parse_seconds(seconds) == seconds


def refusal(parse, value):
    try:
        parse(value)
    except ValueError as error:
        return str(error)
    return "expected nothing else"


@given(st.text() | st.floats() | st.integers() | st.booleans() | st.none())
def test_anything_else_is_a_value_error_and_never_another_one(value):
    for parse in (parse_bytes, parse_seconds, parse_count):
        message = refusal(parse, value)
        assert message.startswith("expected ")
        assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a\nb", '"a\\nb"'),
        ("a\u2028b", '"a\\u2028b"'),
        ("x" * 41, '"' + "x" * 39 + '…"'),
        ("从 Infra", '"从 Infra"'),
        (False, "false"),
        (1.0, "the number 1.0"),
        ({1}, "set"),
    ],
)
def test_a_value_is_shown_on_one_short_line(value, text):
    assert shown(value) == text


def test_an_exact_size_has_mib_where_they_say_something_and_every_byte():
    assert format_exactly(988_065_536) == "942.3 MiB (988,065,536 bytes)"
    assert [format_exactly(nbytes) for nbytes in (0, 1, 104_857)] == ["0 bytes", "1 byte", "104,857 bytes"]
    assert format_exactly(104_858) == "0.1 MiB (104,858 bytes)"
    assert format_exactly(-3 << 20) == "-3.0 MiB (-3,145,728 bytes)"

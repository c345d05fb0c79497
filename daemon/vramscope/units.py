"""Sizes, durations and counts as text: what people write is read exactly, what they are shown names its unit.

Sizes: a number and a unit, `512MiB`, `10 GB`, `1.5GiB`, `1e6`, `1_000`. kB MB GB TB PB (or k M G T P) are powers of
1000, KiB MiB GiB TiB PiB (or Ki Mi Gi Ti Pi) are powers of 1024, B or no unit is bytes. Case matters, because `Gb`
would be bits and `m` a thousandth; only k may also be written K. A fraction of a unit is rounded to the nearest byte.

Durations: `30s`, `5m`, `1h30m`, `250ms`, `1.5h`, or a bare number of seconds; units d h m s ms us, the largest first.
"""

import math
import re
from fractions import Fraction

MAX_BYTES = 2**63 - 1
MAX_SECONDS = 366 * 86400
MAX_COUNT = 2**63 - 1

_MAX_TEXT = 64
_NUMBER = r"(?:[0-9]+(?:_[0-9]+)*(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
_PLAIN = re.compile(_NUMBER)
_SIZE = re.compile(rf"({_NUMBER}) ?([A-Za-z]*)")
_DURATION = re.compile(rf"({_NUMBER}) ?([A-Za-z]+) ?")

_SIZE_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("kMGTP", start=1):
    for _spelling in dict.fromkeys((_letter, _letter.upper())):
        _SIZE_UNITS |= {_spelling: 1000**_power, f"{_spelling}B": 1000**_power}
    _SIZE_UNITS |= {f"{_letter.upper()}i": 1024**_power, f"{_letter.upper()}iB": 1024**_power}
_SECONDS = {
    "d": Fraction(86400),
    "h": Fraction(3600),
    "m": Fraction(60),
    "s": Fraction(1),
    "ms": Fraction(1, 10**3),
    "us": Fraction(1, 10**6),
}

# The same for a JSON Schema: in the part of the language that Python's and ECMAScript's expressions share.
NUMBER_PATTERN = rf"^\s*{_NUMBER}\s*$"
SIZE_PATTERN = rf"^\s*{_NUMBER} ?(?:{'|'.join(unit for unit in _SIZE_UNITS if unit)})?\s*$"
DURATION_PATTERN = rf"^\s*(?:{_NUMBER}|(?=[0-9.]){''.join(f'(?:{_NUMBER} ?{unit} ?)?' for unit in _SECONDS)})\s*$"

_EXPECTED_SIZE = "expected a size such as 512MiB, 10GB or 1048576"
_EXPECTED_DURATION = "expected a duration such as 250ms, 30s, 5m or 1h30m"
_SHOWN = 40
_SHOWN_AS_MIB = 104_858  # 0.1 MiB, rounded up


def shown(value: object) -> str:
    """A value as error messages show it: one short line that says its type where that is not evident."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        text = value if len(value) <= _SHOWN else value[: _SHOWN - 1] + "…"
        return f'"{printable(text)}"'
    if isinstance(value, int | float):
        digits = printable_number(value)
        return f"the number {digits}"
    return "a list" if isinstance(value, list) else "a mapping" if isinstance(value, dict) else type(value).__name__


def printable(text: str) -> str:
    """`text` with everything that a terminal would not print (or would break a line at) escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def printable_number(value: float) -> str:
    """The digits of a number; an integer too long to be read (or to be converted by Python) shows only its size."""
    if isinstance(value, int) and value.bit_length() > 4 * _SHOWN:
        return f"of {value.bit_length()} bits"
    return str(value)


def parse_bytes(value: object) -> int:
    """Whole bytes of a size; raises ValueError for what is no size, is negative, or is 8 EiB and more."""
    amount, unit = _number(value, _EXPECTED_SIZE), 1
    if amount is None:
        text = str(value).strip()
        match = _SIZE.fullmatch(text) if len(text) <= _MAX_TEXT else None
        if match is None or match[2] not in _SIZE_UNITS:
            raise ValueError(f"{_EXPECTED_SIZE}, got {shown(value)}{_spelling_hint(match[2] if match else '')}")
        amount, unit = Fraction(match[1]), _SIZE_UNITS[match[2]]
    if amount < 0:
        raise ValueError(f"{_EXPECTED_SIZE}, got {shown(value)}: a size is never negative")
    if unit == 1 and amount.denominator != 1:
        raise ValueError(f"{_EXPECTED_SIZE}, got {shown(value)}: a part of a byte")
    if amount * unit > MAX_BYTES:
        raise ValueError(f"{_EXPECTED_SIZE}, got {shown(value)}: larger than 8 EiB")
    return round(amount * unit)


def parse_seconds(value: object) -> float:
    """Seconds of a duration; raises ValueError for what is no duration, is negative, or is longer than 366 days."""
    amount = _number(value, _EXPECTED_DURATION)
    if amount is None:
        amount = _compound(str(value).strip())
    if amount is None:
        raise ValueError(f"{_EXPECTED_DURATION}, got {shown(value)}")
    if amount < 0:
        raise ValueError(f"{_EXPECTED_DURATION}, got {shown(value)}: a duration is never negative")
    if amount > MAX_SECONDS:
        raise ValueError(f"{_EXPECTED_DURATION}, got {shown(value)}: longer than 366 days")
    return float(amount)


def parse_count(value: object) -> int:
    """A whole number of 1 or more (`3`, `1_000`, `1e9`); raises ValueError for anything else."""
    expected = "expected a whole number of 1 or more"
    amount = _number(value, expected)
    if amount is None or amount.denominator != 1 or not 1 <= amount <= MAX_COUNT:
        raise ValueError(f"{expected}, got {shown(value)}")
    return int(amount)


def _number(value: object, expected: str) -> Fraction | None:
    """The exact value of a number or of a text that is only a number; None for another text."""
    if isinstance(value, str):
        text = value.strip()
        return Fraction(text) if len(text) <= _MAX_TEXT and _PLAIN.fullmatch(text) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{expected}, got {shown(value)}")
    return Fraction(value)


def _compound(text: str) -> Fraction | None:
    """The sum of a text such as 1h30m, whose units get smaller; None where it is not one."""
    total, smallest, end = Fraction(0), Fraction(MAX_SECONDS), 0
    while end < len(text) <= _MAX_TEXT:
        match = _DURATION.match(text, end)
        unit = _SECONDS.get(match[2]) if match else None
        if match is None or unit is None or unit >= smallest:
            return None
        total, smallest, end = total + Fraction(match[1]) * unit, unit, match.end()
    return total if 0 < end == len(text) else None


def _spelling_hint(unit: str) -> str:
    """A hint where only the case of a unit is wrong."""
    for known in ("kB", "MB", "GB", "TB", "PB", "KiB", "MiB", "GiB", "TiB", "PiB", "B"):
        if unit and known.casefold() in {unit.casefold(), unit.casefold() + "b"}:
            return f' (did you mean "{known}"?)'
    return ""


def format_bytes(nbytes: int) -> str:
    """A size in binary units, `950.2 MiB` or `1.45 GiB`; a difference of sizes may be negative."""
    sign, size = ("-", -nbytes) if nbytes < 0 else ("", nbytes)
    if size < 1024:  # noqa: PLR2004  below one KiB there is nothing to round
        return f"{sign}{size} B"
    units = ("KiB", "MiB", "GiB", "TiB", "PiB", "EiB")
    power = min((size.bit_length() - 1) // 10, len(units))
    scaled = size / 1024**power
    if scaled >= 1023.95 and power < len(units):  # noqa: PLR2004  would print as 1024.0
        power, scaled = power + 1, scaled / 1024
    return f"{sign}{scaled:.{1 if scaled >= 99.995 else 2}f} {units[power - 1]}"  # noqa: PLR2004  four digits


def format_seconds(seconds: float) -> str:
    """A duration for people: `250 ms`, `12.3 s`, `5m 7s`, `1h 30m 0s`."""
    if seconds < 0.9995:  # noqa: PLR2004  would print as 1000 ms
        return f"{seconds * 1000:.3g} ms"
    if seconds < 59.95:  # noqa: PLR2004  would print as 60.0 s
        return f"{seconds:.1f} s" if seconds >= 9.995 else f"{seconds:.2f} s"  # noqa: PLR2004  three digits
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes}m {rest}s" if hours else f"{minutes}m {rest}s"


def format_count(count: int) -> str:
    """A count with its thousands apart: 494,032,768."""
    return f"{count:,}"


def format_exactly(nbytes: int) -> str:
    """A size in MiB with every byte, `942.3 MiB (988,065,536 bytes)`; in bytes alone where MiB would say nothing."""
    exact = f"{nbytes:,} byte{'' if nbytes == 1 else 's'}"
    return exact if abs(nbytes) < _SHOWN_AS_MIB else f"{nbytes / (1 << 20):,.1f} MiB ({exact})"

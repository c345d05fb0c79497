"""Numbers in tables and narration: what is not known is a dash, and one column keeps one unit."""

from vramscope.units import format_count, format_seconds

MIB = 1 << 20
UNKNOWN = "-"


def mib(nbytes: float | None) -> str:
    """Return mebibytes with one decimal, so that the figures of a column compare at a glance."""
    return UNKNOWN if nbytes is None else f"{nbytes / MIB:,.1f} MiB"


def exact(count: int | None) -> str:
    """Return every digit, in groups of three."""
    return UNKNOWN if count is None else format_count(count)


def seconds(duration: float | None) -> str:
    """Return a duration as people read it."""
    return UNKNOWN if duration is None else format_seconds(duration)


def rate(nbytes: int, duration: float) -> str:
    """Return mebibytes per second, the unit of every rate that is shown."""
    return UNKNOWN if duration <= 0 else f"{mib(nbytes / duration)}/s"


def percent(part: int | None, whole: int | None) -> str:
    """Return a share with one decimal; what is there and is less says so."""
    if part is None or not whole:
        return UNKNOWN
    share = f"{100 * part / whole:.1f} %"
    return "< 0.1 %" if part > 0 and share == "0.0 %" else share

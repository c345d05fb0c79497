"""The options that describe simulated devices, for every command that takes them."""

import argparse

from vramscope.errors import UsageError
from vramscope.settings import (
    DEFAULT_BANDWIDTH_BYTES_PER_SECOND,
    DEFAULT_CAPACITY_BYTES,
    DEFAULT_CONTEXT_BYTES,
    SimulationSettings,
)
from vramscope.units import format_bytes, parse_bytes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    group = parser.add_argument_group("simulated device")
    group.add_argument(
        "--capacity",
        action="append",
        default=[],
        metavar="DEVICE=SIZE",
        help=f"a simulated device and its memory (default: cuda:0={format_bytes(DEFAULT_CAPACITY_BYTES)})",
    )
    group.add_argument(
        "--context",
        default=str(DEFAULT_CONTEXT_BYTES),
        metavar="SIZE",
        help=f"what a CUDA context takes (default: {format_bytes(DEFAULT_CONTEXT_BYTES)})",
    )
    group.add_argument("--other-use", default="0", metavar="SIZE", help="what other processes take (default: 0)")
    group.add_argument(
        "--bandwidth",
        default=str(DEFAULT_BANDWIDTH_BYTES_PER_SECOND),
        metavar="SIZE",
        help="bytes a second that a copy moves; 0 copies in no time "
        f"(default: {format_bytes(DEFAULT_BANDWIDTH_BYTES_PER_SECOND)})",
    )


def settings(arguments: argparse.Namespace) -> SimulationSettings:
    """The devices that the options describe. Raises UsageError."""
    capacity = dict(_device_size(text) for text in arguments.capacity)
    return SimulationSettings(
        capacity_bytes=capacity or {"cuda:0": DEFAULT_CAPACITY_BYTES},
        context_bytes=_size("--context", arguments.context),
        other_bytes=_size("--other-use", arguments.other_use),
        bandwidth_bytes_per_second=_size("--bandwidth", arguments.bandwidth),
    )


def _device_size(text: str) -> tuple[str, int]:
    device, equals, size = text.partition("=")
    if not equals or not device.startswith("cuda:") or not device.removeprefix("cuda:").isdecimal():
        raise UsageError(f"--capacity: {text!r} is not DEVICE=SIZE", hint="for example --capacity cuda:0=12GiB")
    return device, _size("--capacity", size)


def _size(option: str, text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None

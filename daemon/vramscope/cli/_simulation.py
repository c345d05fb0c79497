"""The options that choose devices and describe simulated ones, for every command that takes them."""

import argparse

from vramscope.errors import UsageError
from vramscope.settings import (
    DEFAULT_BANDWIDTH_BYTES_PER_SECOND,
    DEFAULT_CAPACITY_BYTES,
    DEFAULT_CONTEXT_BYTES,
    DeviceMode,
    SimulationSettings,
)
from vramscope.units import format_bytes, parse_bytes

# No card was ever this small, but a size without its unit is.
SMALLEST_CAPACITY_BYTES = 64 << 20
LAST_ORDINAL = 127


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--device",
        choices=[mode.value for mode in DeviceMode],
        default=DeviceMode.AUTO.value,
        help="auto takes CUDA where torch sees it, and else simulates, with a warning; cuda insists; "
        "simulated never touches a GPU, and so does auto beside --capacity (default: auto)",
    )
    group = parser.add_argument_group("simulated device")
    group.add_argument(
        "--capacity",
        action="append",
        default=[],
        metavar="DEVICE=SIZE",
        help="a simulated device and its memory; may be given several times, and devices before it have the default "
        f"(default: cuda:0={format_bytes(DEFAULT_CAPACITY_BYTES)})",
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
        help="what a copy moves in a second, such as 12GiB or 12GiB/s; 0 copies in no time "
        f"(default: {format_bytes(DEFAULT_BANDWIDTH_BYTES_PER_SECOND)}/s)",
    )


def device_mode(arguments: argparse.Namespace) -> DeviceMode:
    """Which devices are asked for. Raises UsageError."""
    mode = DeviceMode(arguments.device)
    if not arguments.capacity:
        return mode
    if mode is DeviceMode.CUDA:
        raise UsageError(
            "--capacity describes a simulated device, and --device cuda asks for a real one",
            hint="leave one of them out",
        )
    return DeviceMode.SIMULATED


def settings(arguments: argparse.Namespace) -> SimulationSettings:
    """The devices that the options describe. Raises UsageError."""
    capacity = _capacity(dict(_device_size(text) for text in arguments.capacity))
    context = _size("--context", arguments.context)
    for device, nbytes in capacity.items():
        if context > nbytes:
            raise UsageError(
                f"--context: a context of {format_bytes(context)} does not fit on {device}, "
                f"which has {format_bytes(nbytes)}"
            )
    return SimulationSettings(
        capacity_bytes=capacity,
        context_bytes=context,
        other_bytes=_size("--other-use", arguments.other_use),
        bandwidth_bytes_per_second=_size("--bandwidth", arguments.bandwidth.removesuffix("/s")),
    )


def _capacity(asked: dict[int, int]) -> dict[str, int]:
    """Every device up to the last one that is asked for: no machine has a cuda:1 and no cuda:0."""
    ordinals = range(max(asked, default=0) + 1)
    return {f"cuda:{ordinal}": asked.get(ordinal, DEFAULT_CAPACITY_BYTES) for ordinal in ordinals}


def _device_size(text: str) -> tuple[int, int]:
    device, equals, size = text.partition("=")
    ordinal = device.removeprefix("cuda:")
    if (
        not equals
        or ordinal == device
        or not (ordinal.isascii() and ordinal.isdecimal())
        or int(ordinal) > LAST_ORDINAL
    ):
        raise UsageError(f"--capacity: {text!r} is not DEVICE=SIZE", hint="for example --capacity cuda:0=12GiB")
    nbytes = _size("--capacity", size)
    if nbytes < SMALLEST_CAPACITY_BYTES:
        hint = (
            f"did you mean {device}={size.strip()}GiB?"
            if size.strip().isdecimal()
            else "sizes take a unit, such as 12GiB"
        )
        smallest = format_bytes(SMALLEST_CAPACITY_BYTES)
        raise UsageError(f"--capacity: {device} would have {format_bytes(nbytes)}, less than {smallest}", hint=hint)
    return int(ordinal), nbytes


def _size(option: str, text: str) -> int:
    try:
        return parse_bytes(text)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None

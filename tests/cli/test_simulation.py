import argparse

import pytest

from vramscope.cli._simulation import add_arguments, device_mode, settings
from vramscope.errors import UsageError
from vramscope.settings import DeviceMode

GIB = 1 << 30


def parsed(*argv):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(argv)


def test_without_options_it_is_one_card_of_12_gib():
    assert settings(parsed()).capacity_bytes == {"cuda:0": 12 * GIB}
    assert device_mode(parsed()) is DeviceMode.AUTO


def test_devices_before_one_that_is_asked_for_are_there_too():
    asked = settings(parsed("--capacity", "cuda:2=8GiB", "--capacity", "cuda:1=4GiB")).capacity_bytes
    assert list(asked.items()) == [("cuda:0", 12 * GIB), ("cuda:1", 4 * GIB), ("cuda:2", 8 * GIB)]


def test_each_capacity_is_a_device_and_asks_for_a_simulation():
    arguments = parsed("--capacity", "cuda:0=24GiB", "--capacity", "cuda:1=8GiB")
    assert settings(arguments).capacity_bytes == {"cuda:0": 24 * GIB, "cuda:1": 8 * GIB}
    assert device_mode(arguments) is DeviceMode.SIMULATED


@pytest.mark.parametrize("text", ["12GiB", "12GiB/s"])
def test_a_bandwidth_may_say_that_it_is_per_second(text):
    assert settings(parsed("--bandwidth", text)).bandwidth_bytes_per_second == 12 * GIB


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (
            ["--capacity", "cuda:0=12"],
            "--capacity: cuda:0 would have 12 B, less than 64.00 MiB (did you mean cuda:0=12GiB?)",
        ),
        (
            ["--capacity", "cuda:0=1MiB"],
            "--capacity: cuda:0 would have 1.00 MiB, less than 64.00 MiB (sizes take a unit, such as 12GiB)",
        ),
        (["--capacity", "12GiB"], "--capacity: '12GiB' is not DEVICE=SIZE (for example --capacity cuda:0=12GiB)"),
        (
            ["--capacity", "cuda:0=512MiB", "--context", "600MiB"],
            "--context: a context of 600.0 MiB does not fit on cuda:0, which has 512.0 MiB",
        ),
        (["--bandwidth", "fast"], '--bandwidth: expected a size such as 512MiB, 10GB or 1048576, got "fast"'),
    ],
)
def test_what_cannot_be_simulated_is_refused(argv, message):
    with pytest.raises(UsageError) as caught:
        settings(parsed(*argv))
    assert str(caught.value) == message


def test_a_real_device_has_the_capacity_that_it_has():
    with pytest.raises(UsageError, match="--capacity describes a simulated device, and --device cuda asks for a real"):
        device_mode(parsed("--capacity", "cuda:0=12GiB", "--device", "cuda"))


def test_an_unknown_device_is_told_with_the_known_ones(capsys):
    with pytest.raises(SystemExit):
        parsed("--device", "gpu")
    error = capsys.readouterr().err
    assert all(mode in error for mode in ("auto", "cuda", "simulated"))
    assert "DeviceMode" not in error

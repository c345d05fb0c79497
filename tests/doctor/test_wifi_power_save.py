import pytest

from vramscope.doctor._frame import State
from vramscope.doctor.wifi_power_save import CHECK, default_interface

HEADER = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT"
WIRED = "eth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0"
WIRELESS = "wlan0\t00000000\t010200C0\t0003\t0\t0\t600\t00000000\t0\t0\t0"
LOCAL = "eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0"
DOWN = "tun0\t00000000\t010200C0\t0002\t0\t0\t0\t00000000\t0\t0\t0"
ZEROS = "0" * 32
SIX = f"{ZEROS} 00 {ZEROS} 00 fe800000000000000000000000000001 00000400 1 0 00000003 wlan0"
REJECTED = f"{ZEROS} 00 {ZEROS} 00 {ZEROS} ffffffff 1 0 00200200 lo"
RADIO = {"sys/class/net/wlan0/phy80211": ""}


def routes(*lines):
    return {"proc/net/route": "\n".join((HEADER, *lines))}


@pytest.fixture
def iw(tmp_path):
    """A program iw that answers with this text; the environment in which it is found."""

    def make(text):
        program = tmp_path / "bin" / "iw"
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\n[ "$*" = "dev wlan0 get power_save" ] && echo "{text}"\n')
        program.chmod(0o755)
        return {"PATH": str(program.parent)}

    return make


@pytest.mark.parametrize(
    ("lines", "interface"),
    [
        ([LOCAL, WIRELESS], "wlan0"),
        ([WIRELESS, WIRED], "eth0"),  # the lower metric
        ([LOCAL, DOWN], None),
        ([], None),
    ],
)
def test_the_default_route_with_the_lowest_metric_counts(machine, lines, interface):
    assert default_interface(machine(routes(*lines))) == interface


def test_a_host_with_ipv6_alone_has_a_default_route_too(machine):
    assert default_interface(machine(routes(), {"proc/net/ipv6_route": f"{REJECTED}\n{SIX}"})) == "wlan0"
    assert default_interface(machine(routes(), {"proc/net/ipv6_route": REJECTED})) is None


def test_a_wire_does_not_sleep(machine):
    assert CHECK.look(machine(routes(WIRED), RADIO)).found == "the default route goes over eth0, which is not wireless"


def test_power_save_that_is_on_is_told_with_the_remedy(machine, iw):
    found = CHECK.look(machine(routes(WIRELESS), RADIO, environment=iw("Power save: on")))
    assert found.state is State.WARNING
    assert found.advice.startswith("`sudo iw dev wlan0 set power_save off`")


def test_power_save_that_is_off_is_well(machine, iw):
    found = CHECK.look(machine(routes(WIRELESS), RADIO, environment=iw("Power save: off")))
    assert (found.state, found.found) == (State.OK, "off on wlan0")


def test_without_iw_it_is_not_known(machine, iw, tmp_path):
    assert CHECK.look(machine(routes(WIRELESS), RADIO, environment={"PATH": str(tmp_path)})).state is State.NOTE
    assert CHECK.look(machine(routes(WIRELESS), RADIO, environment=iw("command failed"))).state is State.NOTE

"""The unit: what systemd itself says of it, and that its command line is one that the program takes."""

import shlex
import shutil
import subprocess
import sys
from configparser import RawConfigParser
from pathlib import Path

import pytest

from vramscope.cli import main

DIRECTORY = Path(__file__).parents[2] / "deploy" / "systemd"
UNIT = DIRECTORY / "vramscope.service"
PROGRAM = "/opt/vramscope/bin/vramscope"


class Unit(RawConfigParser):
    """A unit's settings, of which some come several times."""

    optionxform = str  # type: ignore[assignment]


@pytest.fixture(scope="module")
def service() -> dict[str, str]:
    parser = Unit(strict=False)
    parser.read(UNIT)
    return dict(parser["Service"])


@pytest.fixture
def installed(tmp_path) -> Path:
    """The unit as on a machine on which the program is installed."""
    path = tmp_path / UNIT.name
    path.write_text(UNIT.read_text().replace(PROGRAM, sys.executable))
    return path


def analyze(*arguments: object) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: apt-get install systemd")
    command = ["systemd-analyze", *(str(argument) for argument in arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)


def test_systemd_finds_nothing_to_complain_about(installed):
    checked = analyze("verify", installed)
    assert [line for line in checked.stderr.splitlines() if UNIT.name in line] == []
    assert checked.returncode == 0, checked.stderr


def test_the_unit_is_hardened(installed):
    """The score is systemd's own exposure level: 0 is least, 10 is a service without any protection."""
    rated = analyze("security", "--offline=true", "--threshold=30", installed)
    assert rated.returncode == 0, rated.stdout[-300:]


def test_the_command_line_is_one_that_the_program_takes(service, tmp_path, capsys):
    """All but the plan, which is not there: that is what it complains about."""
    values = {"${VRAMSCOPE_PLAN}": str(tmp_path / "plan.yaml"), "${VRAMSCOPE_LISTEN}": "127.0.0.1:0"}
    program, *words = shlex.split(service["ExecStart"])
    assert program == PROGRAM
    assert main([values.get(word, word) for word in words if word != "$VRAMSCOPE_OPTIONS"]) == 1
    assert "plan.yaml: cannot be read" in capsys.readouterr().err


def test_nothing_hides_the_gpu_or_the_memory(service):
    """ProtectClock= allows a device, and with that forbids all others."""
    hidden = {"PrivateDevices", "DevicePolicy", "DeviceAllow", "ProtectClock", "ProcSubset", "MemoryDenyWriteExecute"}
    assert hidden & service.keys() == set()


def test_a_killed_worker_does_not_end_the_service(service):
    assert service["OOMPolicy"] == "continue"
    assert service["Type"] == "notify"
    assert int(service["WatchdogSec"]) >= 10


def test_the_environment_file_sets_nothing_by_itself():
    lines = (DIRECTORY / "vramscope.env").read_text().splitlines()
    assert all(not line or line.startswith("#") for line in lines)

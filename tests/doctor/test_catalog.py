"""The contract of every check, whichever checks there are."""

import importlib
from pathlib import Path

import pytest

import vramscope.doctor as room
from vramscope.doctor._catalog import checks
from vramscope.doctor._frame import State, examine
from vramscope.settings import DeviceMode

CHECKS = checks()


def test_the_checks_are_the_files_of_the_room():
    files = {path.stem for path in Path(room.__path__[0]).glob("*.py") if not path.name.startswith("_")}
    assert set(CHECKS) == files


def test_no_two_checks_have_one_title():
    assert len({check.title for check in CHECKS.values()}) == len(CHECKS)


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_is_documented_and_bounded(name):
    assert importlib.import_module(f"vramscope.doctor.{name}").__doc__
    assert 0 < CHECKS[name].seconds <= 70


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_answers_on_a_machine_where_nothing_is_there(name, machine, tmp_path):
    nothing = machine(environment={"PATH": str(tmp_path)}, device_mode=DeviceMode.SIMULATED)
    (result,) = examine({name: CHECKS[name]}, nothing)
    assert "the check itself failed" not in result.finding.found
    assert result.finding.found


@pytest.mark.parametrize("mode", DeviceMode)
def test_whatever_is_no_problem_and_not_well_has_an_advice(mode, machine):
    for result in examine(CHECKS, machine(device_mode=mode)):
        if result.finding.state in {State.WARNING, State.PROBLEM}:
            assert result.finding.advice, result

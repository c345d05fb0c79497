"""Standard output and error that are closed, full, or read by nobody."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from vramscope.cli._output import terminal

GOOD = "version: 1\nmodels: {}\nsteps: [{wait: 1ms}]\n"
FULL = Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="there is no /dev/full here")


@pytest.fixture
def plan(tmp_path):
    path = tmp_path / "plan.yaml"
    path.write_text(GOOD)
    return path


def shell(redirections, *argv, **environment):
    """Run vramscope with a shell's redirections; returns code, standard output and error of what is left of them."""
    command = f'exec "$0" -m vramscope "$@" {redirections}'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, *map(str, argv)],
        capture_output=True,
        encoding="utf-8",
        timeout=100,
        check=False,
        env={**os.environ, **environment},
    )
    return done.returncode, done.stdout, done.stderr


@needs_full
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_one_line(plan, unbuffered):
    message = "vramscope: cannot write to standard output: No space left on device\n"
    for command in ("check", "forecast"):
        assert shell(">/dev/full", command, plan, PYTHONUNBUFFERED=unbuffered) == (1, "", message)


def test_a_closed_standard_output_is_one_line(plan):
    message = "vramscope: cannot write to standard output: Bad file descriptor\n"
    assert shell(">&-", "check", plan) == (1, "", message)


@needs_full
def test_a_standard_error_that_cannot_be_written_changes_no_code(plan):
    for redirection in ("2>&-", "2>/dev/full"):
        assert shell(redirection, "check", plan)[0] == 0
        assert shell(redirection, "run", plan, "--capacity", "12GiB")[0] == 2


@needs_full
@pytest.mark.parametrize("redirection", [">/dev/full", ">&-", ">&- 2>&-", ">/dev/full 2>/dev/full"])
def test_a_run_goes_on_whatever_becomes_of_its_narration(plan, redirection):
    code, output, error = shell(redirection, "run", plan, "--once", "--device", "simulated", "--listen", "127.0.0.1:0")
    assert (code, output) == (0, "")
    assert "Traceback" not in error
    assert ("standard_output_lost" in error) is ("2>" not in redirection)


def test_a_run_whose_reader_goes_away_is_not_disturbed(plan):
    command = [sys.executable, "-m", "vramscope", "run", plan, "--once", "--device", "simulated"]
    with subprocess.Popen(
        [*command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(100) == 0


def test_no_color_turns_every_style_off():
    assert terminal({"NO_COLOR": "1"}).color_system is None

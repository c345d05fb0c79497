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
@pytest.mark.parametrize(
    ("redirection", "message"),
    [
        (">/dev/full", "vramscope: cannot write to standard output: No space left on device\n"),
        (">&-", "vramscope: cannot write to standard output: Bad file descriptor\n"),
        (">&- 2>&-", ""),
        (">/dev/full 2>/dev/full", ""),
    ],
)
def test_a_single_cycle_whose_table_is_lost_runs_and_is_an_error_of_one_line(plan, redirection, message):
    journal = plan.with_name("run.jsonl")
    arguments = ("run", plan, "--once", "--device", "simulated", "--listen", "127.0.0.1:0", "--journal", journal)
    assert shell(redirection, *arguments) == (1, "", message)
    (ended,) = [line for line in journal.read_text().splitlines() if '"cycle_ended"' in line]
    assert '"outcome": "succeeded"' in ended


@needs_full
def test_a_quiet_run_loses_nothing(plan):
    arguments = ("run", plan, "--once", "--quiet", "--device", "simulated", "--listen", "127.0.0.1:0")
    assert shell(">/dev/full", *arguments) == (0, "", "")


@needs_full
def test_a_daemon_warns_at_once_that_its_narration_is_lost_and_serves_on(plan):
    command = [sys.executable, "-m", "vramscope", "run", plan, "--device", "simulated", "--listen", "127.0.0.1:0"]
    with FULL.open("wb") as full, subprocess.Popen(command, stdout=full, stderr=subprocess.PIPE) as process:
        assert b"standard_output_lost" in process.stderr.readline()
        assert process.poll() is None
        process.terminate()
        assert process.stderr.read() == b""
        assert process.wait(60) == 0


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

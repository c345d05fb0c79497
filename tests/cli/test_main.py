import importlib
import itertools
import os
import re
import subprocess
import sys

import pytest

from vramscope import __version__
from vramscope.cli import COMMANDS, Command, main
from vramscope.errors import ExitCode

COMMAND = '''\
"""A command that a test wrote."""
import argparse
from vramscope.errors import SourceError, UsageError

HELP = "do what the test says"

def add_arguments(parser):
    parser.add_argument("--again", action="store_true")

def run(arguments):
    {body}
'''


NUMBERS = itertools.count()  # a module is imported once, so each has a name of its own


@pytest.fixture
def write_command(tmp_path, monkeypatch):
    """Write a command whose `run` has the given body."""

    def write(body):
        name = f"written_command_{next(NUMBERS)}"
        (tmp_path / f"{name}.py").write_text(COMMAND.format(body=body))
        return Command("act", "do what the test says", name)

    monkeypatch.syspath_prepend(tmp_path)
    return write


@pytest.fixture
def run_command(write_command):
    """Run a command whose `run` has the given body."""
    return lambda body, *argv: main(["act", *argv], [write_command(body)])


def run_python(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, encoding="utf-8", timeout=100, check=False, **options
    )


def test_a_commands_code_is_the_programs(run_command):
    assert run_command("return 0") == 0
    assert run_command("return 7 if arguments.again else 0", "--again") == 7


def test_an_error_of_ours_is_a_line_on_standard_error_and_its_code(run_command, capsys):
    assert run_command("raise SourceError('no such model', hint='download it')") == ExitCode.USER
    assert run_command("raise UsageError('first\\nsecond')") == ExitCode.USAGE
    output = capsys.readouterr()
    assert output.err == "vramscope: no such model (download it)\nvramscope: first\nvramscope: second\n"
    assert output.out == ""


def test_an_interrupt_is_quiet(run_command, capsys):
    assert run_command("raise KeyboardInterrupt") == ExitCode.INTERRUPTED
    assert capsys.readouterr() == ("", "")


def test_anything_else_is_our_bug_and_says_so(run_command, capsys):
    assert run_command("return {}['missing']") == ExitCode.BUG
    error = capsys.readouterr().err
    assert error.startswith("vramscope: this is a bug in vramscope; please report it with what follows\nTraceback ")
    assert error.endswith("KeyError: 'missing'\n")


def test_a_broken_pipe_of_our_own_is_a_bug_too(write_command, tmp_path):
    command = write_command("raise BrokenPipeError")
    code = f"import sys; from vramscope.cli import Command, main; sys.exit(main(['act'], [{command!r}]))"
    result = run_python("-c", code, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert result.returncode == ExitCode.BUG
    assert result.stderr.endswith("BrokenPipeError\n")


def test_a_reader_that_is_gone_is_quiet(tmp_path):
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run(
        [sys.executable, "-m", "vramscope", "check", str(tmp_path / "none.yaml")],
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=100,
        check=False,
    )
    os.close(write)
    assert (result.returncode, result.stderr) == (141, b"")


def test_help_names_every_command_and_imports_none_of_them():
    code = (
        "import sys\nfrom vramscope.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    print(end.code)\n"
        "print([name for name in ('torch', 'pydantic', 'yaml', 'asyncio', 'rich') if name in sys.modules])\n"
    )
    result = run_python("-c", code)
    assert result.stdout.endswith("0\n[]\n")
    for command in COMMANDS:
        assert f"    {command.name:9} {command.help}\n" in result.stdout


def test_help_has_examples_exit_codes_and_the_environment():
    text = run_python("-m", "vramscope", "--help").stdout
    for code in ExitCode:
        assert re.search(rf"^  {code.value} +\S", text, re.MULTILINE)
    for name in ("vramscope run plan.yaml --once", "VRAMSCOPE_CACHE", "HF_HUB_CACHE", "NO_COLOR"):
        assert name in text


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_a_command_says_the_same_of_itself_as_the_table_does(command):
    module = importlib.import_module(command.module)
    assert command.help == module.HELP
    assert callable(module.add_arguments)
    assert callable(module.run)


def test_the_version_is_the_packages():
    assert run_python("-m", "vramscope", "--version").stdout == f"vramscope {__version__}\n"


@pytest.mark.parametrize("argv", [[], ["chek"], ["check"], ["check", "--formt", "json", "plan.yaml"]])
def test_misuse_is_told_with_the_usage(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == ExitCode.USAGE
    output = capsys.readouterr()
    assert output.err.startswith("usage: vramscope")
    assert output.out == ""

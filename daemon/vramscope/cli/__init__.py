"""The command line. Each command is a module of this room, imported only when it is the one that is asked for."""

import argparse
import gc
import importlib
import io
import os
import select
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vramscope import __version__
from vramscope.errors import ExitCode, VramscopeError

BROKEN_PIPE = 141  # what a shell reports for a program that SIGPIPE ended


@dataclass(frozen=True)
class Command:
    """A command: what `vramscope --help` says of it, and the module that has `add_arguments`, `run` and HELP."""

    name: str
    help: str
    module: str


COMMANDS = (
    Command("run", "run a plan, and serve its metrics and its page", "vramscope.cli.run"),
    Command("forecast", "say what each step will take, before it is run", "vramscope.cli.forecast"),
    Command("check", "find every problem in a plan, without running it", "vramscope.cli.check"),
)


def main(argv: Sequence[str] | None = None, commands: Sequence[Command] = COMMANDS) -> int:
    """Run one command and return its exit code (see errors.ExitCode); argparse itself exits for --help and misuse."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8 must not end a run
    try:
        gc.disable()  # what is imported now stays, so collections during the imports find nothing
        run, arguments = _parse(sys.argv[1:] if argv is None else argv, commands)
        gc.freeze()  # and later ones need not look at it, which would stall a scrape
        gc.enable()
        code = run(arguments)
        sys.stdout.flush()
    except VramscopeError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"vramscope: {line}\n")
        return int(error.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except Exception as error:  # noqa: BLE001  the last border: whatever comes here is ours to correct, and says so
        if isinstance(error, BrokenPipeError) and _reader_is_gone():
            # Python flushes once more at exit: https://docs.python.org/3/library/signal.html#note-on-sigpipe
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE
        sys.stderr.write("vramscope: this is a bug in vramscope; please report it with what follows\n")
        traceback.print_exc()
        return int(ExitCode.BUG)
    return code


def _reader_is_gone() -> bool:
    """Whether it is standard output's pipe that nobody reads any more, rather than a pipe of our own."""
    poll = select.poll()
    poll.register(sys.stdout, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _parse(
    argv: Sequence[str], commands: Sequence[Command]
) -> tuple[Callable[[argparse.Namespace], int], argparse.Namespace]:
    """The command's function and its arguments; only the module of that command is imported."""
    parser = argparse.ArgumentParser(
        prog="vramscope",
        description="Runs a plan of model steps on a GPU and accounts for every byte of its memory.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"vramscope {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", dest="command", required=True)
    wanted = next((word for word in argv if not word.startswith("-")), None)
    modules = {}
    for command in commands:
        subparser = subparsers.add_parser(command.name, help=command.help, allow_abbrev=False)
        if command.name == wanted:
            modules[command.name] = module = importlib.import_module(command.module)
            subparser.description = f"{module.HELP[0].upper()}{module.HELP[1:]}."
            module.add_arguments(subparser)
    arguments = parser.parse_args(argv)
    run: Callable[[argparse.Namespace], int] = modules[arguments.command].run
    return run, arguments

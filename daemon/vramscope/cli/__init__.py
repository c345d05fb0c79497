"""The command line. Each command is a module of this room, imported only when it is the one that is asked for."""

import argparse
import gc
import importlib
import io
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vramscope import __version__
from vramscope.cli._output import code_of_lost_output, complain, occupy_closed_streams, settle
from vramscope.errors import ExitCode, VramscopeError

EPILOG = """\
examples:
  vramscope check plan.yaml                     every problem of a plan, with line and column
  vramscope forecast plan.yaml                  what each step will take
  vramscope inspect synthetic:qwen2.5-0.5b      what a model consists of, from its headers alone
  vramscope tokenize Qwen/Qwen2.5-0.5B-Instruct "How many tokens?"
  vramscope doctor                              what on this machine would stop a run, and what to do
  vramscope run plan.yaml --once                one cycle, and the results table
  vramscope run plan.yaml --device simulated --capacity cuda:0=24GiB
  vramscope run plan.yaml --journal run.jsonl   and then: vramscope report run.jsonl -o run.html
  vramscope run plan.yaml --quiet --log-level info --log-format json --listen 0.0.0.0:10089

exit codes:
  0    all is well
  1    a problem of yours: a bad plan, a taken port, output that cannot be written, a cycle that failed with --once
       (a reader of a run's output that goes away, as head does, changes nothing)
  2    the command line is wrong, --device cuda where there is no CUDA, or a --journal that can never be written
  3    a bug in vramscope
  130  ended by Ctrl-C
  143  `run --once` ended by SIGTERM before its cycle was done

environment:
  VRAMSCOPE_CACHE        where synthetic checkpoints are kept (default: ~/.cache/vramscope)
  HF_HUB_CACHE, HF_HOME  where models of the Hugging Face hub are (default: ~/.cache/huggingface/hub)
  PYTORCH_ALLOC_CONF     PyTorch's allocator, as ever; the forecast reads it too
  CUDA_VISIBLE_DEVICES   the devices that PyTorch sees
  VRAMSCOPE_HOST_PROC    where a container finds the host's /proc, to tell its own process in the driver's list
                         (default: /host/proc)
  NO_COLOR               no colours and no styles
"""


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
    Command("inspect", "say what a model consists of, without loading it", "vramscope.cli.inspect"),
    Command("tokenize", "count the tokens of a text or a chat, and show them", "vramscope.cli.tokenize"),
    Command("report", "show the results of a run from its journal, or compare two runs", "vramscope.cli.report"),
    Command("doctor", "say what on this machine would stop or spoil a run", "vramscope.cli.doctor"),
    Command("schema", "print the JSON Schema of the plan, for editors", "vramscope.cli.schema"),
)


def main(argv: Sequence[str] | None = None, commands: Sequence[Command] = COMMANDS) -> int:
    """Run one command and return its exit code (see errors.ExitCode); argparse itself exits for --help and misuse."""
    occupy_closed_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that is not UTF-8 must not end a run
    try:
        return _run(sys.argv[1:] if argv is None else argv, commands)
    finally:
        settle()


def _run(argv: Sequence[str], commands: Sequence[Command]) -> int:
    try:
        gc.disable()  # what is imported now stays, so collections during the imports find nothing
        run, arguments = _parse(argv, commands)
        gc.freeze()  # and later ones need not look at it, which would stall a scrape
        gc.enable()
        code = run(arguments)
        sys.stdout.flush()
    except VramscopeError as error:
        complain(str(error))
        return int(error.exit_code)
    except KeyboardInterrupt:
        return int(ExitCode.INTERRUPTED)
    except Exception as error:  # noqa: BLE001  the last border: whatever comes here is ours to correct, and says so
        if (lost := code_of_lost_output(error)) is not None:
            return lost
        complain("this is a bug in vramscope; please report it with what follows")
        traceback.print_exc()
        return int(ExitCode.BUG)
    return code


def _parse(
    argv: Sequence[str], commands: Sequence[Command]
) -> tuple[Callable[[argparse.Namespace], int], argparse.Namespace]:
    """The command's function and its arguments; only the module of that command is imported."""
    parser = argparse.ArgumentParser(
        prog="vramscope",
        description="Runs a plan of model steps on a GPU and accounts for every byte of its memory.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
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

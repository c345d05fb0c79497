"""Standard output and error as they may be: closed, full, a terminal of some kind, a pipe that nobody reads."""

import contextlib
import os
import select
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from vramscope.errors import ExitCode

if TYPE_CHECKING:
    from rich.console import Console

BROKEN_PIPE = 141  # what a shell reports for a program that SIGPIPE ended


def occupy_closed_streams() -> None:
    """Open what is closed of the standard streams, so that no file or socket of ours gets its number.

    A write to a closed standard output fails then, as the user should hear of it; a closed standard error is silent.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is not None:
            continue
        opened = os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY)
        if opened != number:
            os.dup2(opened, number)
            os.close(opened)
        os.set_inheritable(number, True)  # noqa: FBT003 - it takes no keyword
        setattr(sys, name, os.fdopen(number, "r" if name == "stdin" else "w", closefd=False))


def terminal(environment: Mapping[str, str]) -> "Console":
    """Standard output for people. NO_COLOR (https://no-color.org) turns every style off, bold and dim too."""
    from rich.console import Console  # noqa: PLC0415 - `vramscope --help` needs none

    return Console(color_system=None) if environment.get("NO_COLOR") else Console()


def complain(text: str) -> None:
    """Write lines to standard error, if it can be written to."""
    with contextlib.suppress(OSError):
        sys.stderr.writelines(f"vramscope: {line}\n" for line in text.splitlines())
        sys.stderr.flush()


def silence(stream: TextIO) -> None:
    """Let a stream that cannot be written to lead nowhere: Python flushes it once more at exit, and would complain.

    https://docs.python.org/3/library/signal.html#note-on-sigpipe
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def code_of_lost_output(error: Exception) -> int | None:
    """The exit code if `error` came from writing to standard output, which is silenced then; None if it did not."""
    if not isinstance(error, OSError):
        return None
    if isinstance(error, BrokenPipeError):
        if not _reader_is_gone():
            return None
        silence(sys.stdout)
        return BROKEN_PIPE
    try:
        sys.stdout.write("\n")  # if that fails too, it is this stream that is broken
        sys.stdout.flush()
    except OSError as again:
        silence(sys.stdout)
        complain(f"cannot write to standard output: {again.strerror}")
        return int(ExitCode.USER)
    return None


def settle() -> None:
    """Before the program ends: silence whatever of standard output and error cannot be written."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            silence(stream)


def _reader_is_gone() -> bool:
    """Whether it is standard output's pipe that nobody reads any more, rather than a pipe of our own."""
    poll = select.poll()
    poll.register(sys.stdout, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))

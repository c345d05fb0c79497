"""`vramscope report JOURNAL`: what a run took, gave back and how long it took, from the journal that it wrote."""

import argparse
import json
import os
import sys
from pathlib import Path

from vramscope.cli._output import terminal
from vramscope.errors import ExitCode, UsageError, VramscopeError
from vramscope.report.comparison import changes_json, comparison
from vramscope.report.markdown import markdown
from vramscope.report.page import page
from vramscope.report.run import ReadRun, read_run
from vramscope.report.run_json import run_json
from vramscope.report.run_sections import run_report
from vramscope.report.terminal import print_report
from vramscope.units import parse_count, printable

HELP = "show the results of a run from its journal, or compare two runs"
FORMATS = ("text", "json", "markdown", "html")
ENDINGS = {
    "": "text",
    ".txt": "text",
    ".json": "json",
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `report` takes."""
    parser.add_argument(
        "journal", type=Path, metavar="JOURNAL", help="what `run --journal FILE` wrote; FILE.1 and so on are read too"
    )
    parser.add_argument("--run", type=_count, metavar="N", help="which run of the journal (default: the last)")
    parser.add_argument(
        "--compare", type=Path, metavar="JOURNAL", help="a later run, to be compared with the first one"
    )
    parser.add_argument("--compare-run", type=_count, metavar="N", help="which run of that journal (default: the last)")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        help="default: what the name after -o ends with (.html, .md, .json, .txt), else text",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to write (default: standard output)")


def _count(text: str) -> int:
    try:
        return parse_count(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def run(arguments: argparse.Namespace) -> int:
    """Write the report; exit code 1 if a journal cannot be read or the report not be written."""
    output: Path | None = arguments.output
    if arguments.compare_run is not None and arguments.compare is None:
        raise UsageError("--compare-run: expected --compare JOURNAL, too")
    form = arguments.format or _form(output)
    first = read_run(arguments.journal, arguments.run)
    second = read_run(arguments.compare, arguments.compare_run) if arguments.compare else None
    if output is None and form == "text":
        report = run_report(first) if second is None else comparison(first, second)
        print_report(report, terminal(os.environ))
        return ExitCode.OK
    text = _text(form, first, second)
    if output is None:
        sys.stdout.write(text)
    else:
        _write(output, text, [arguments.journal, arguments.compare])
    return ExitCode.OK


def _form(output: Path | None) -> str:
    """The format by a file's ending. Raises UsageError."""
    ending = output.suffix.lower() if output else ""
    if ending not in ENDINGS:
        known = ", ".join(each for each in ENDINGS if each)
        hint = "or say --format, which goes with any name"
        raise UsageError(f"-o {printable(str(output))}: expected a name that ends with {known}", hint=hint)
    return ENDINGS[ending]


def _text(form: str, first: ReadRun, second: ReadRun | None) -> str:
    if form == "json":
        told = run_json(first)
        if second is not None:
            told = {"before": told, "after": run_json(second), "changes": changes_json(first, second)}
        return json.dumps(told, indent=2, ensure_ascii=False) + "\n"
    report = run_report(first) if second is None else comparison(first, second)
    if form == "html":
        return page(report)
    if form == "markdown":
        return markdown(report)
    from rich.console import Console  # noqa: PLC0415 - only text needs it

    console = Console(file=open(os.devnull, "w"), record=True, color_system=None)  # noqa: SIM115, PTH123
    print_report(report, console)
    return console.export_text(styles=False)


def _write(path: Path, text: str, journals: list[Path | None]) -> None:
    """Write a file as a whole, or leave what is there. Raises VramscopeError."""
    name = printable(str(path))
    for journal in journals:
        if journal is not None and path.exists() and journal.exists() and path.samefile(journal):
            raise UsageError(f"-o {name}: this is the journal itself; name another file")
    content = text.encode("utf-8", "backslashreplace")
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        if path.exists() and not path.is_file():  # a terminal, a pipe
            path.write_bytes(content)
            return
        new.write_bytes(content)
        new.replace(path)
    except OSError as error:
        new.unlink(missing_ok=True)
        raise VramscopeError(f"-o {name}: cannot be written: {error.strerror}") from None

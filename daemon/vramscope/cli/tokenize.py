"""`vramscope tokenize SOURCE TEXT`: what a model sees of a text: tokens, and how much of the window they fill."""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vramscope.anatomy.jsonfile import parse
from vramscope.anatomy.source import SYNTHETIC
from vramscope.anatomy.tokenizer import embedding_rows, find_tokenizer, optional_config, synthetic_files
from vramscope.cli._output import terminal
from vramscope.errors import ExitCode, SourceError, UsageError
from vramscope.report.token_table import TokenReport, print_tokens
from vramscope.settings import default_hub_cache, stay_offline

HELP = "count the tokens of a text or a chat, and show them"
STDIN = "-"
# A text of 4 MiB takes up to a minute and 1.5 GiB of memory, and is longer than any context window.
MAX_TEXT_BYTES = 4 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what `tokenize` takes."""
    parser.add_argument("source", metavar="SOURCE", help="a directory, ORG/NAME in the hub cache, or synthetic:NAME")
    parser.add_argument("text", metavar="TEXT", nargs="?", help=f"the text; {STDIN} reads standard input")
    parser.add_argument("--chat", metavar="FILE", help=f"count a chat (JSON: a list of messages); {STDIN} as for TEXT")
    parser.add_argument(
        "--generation-prompt",
        action="store_true",
        help="with --chat: end with what the template writes to begin the answer, as a server does",
    )
    parser.add_argument("--revision", default="main", help="of a model of the hub (default: main)")
    parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")


def run(arguments: argparse.Namespace) -> int:
    """Print the figures and the tokens."""
    if (arguments.text is None) == (arguments.chat is None):
        raise UsageError("expected a TEXT or --chat FILE, and not both")
    if arguments.generation_prompt and arguments.chat is None:
        raise UsageError("--generation-prompt goes with --chat")
    given = _read_text(arguments.text) if arguments.chat is None else _read_chat(arguments.chat)
    with _directory(arguments) as directory:
        report = _report(directory, given, arguments)
    if arguments.format == "json":
        sys.stdout.write(json.dumps(_as_json(report), ensure_ascii=False) + "\n")
    else:
        print_tokens(report, terminal(os.environ))
    return ExitCode.OK


def _report(directory: Path, given: str | dict[str, Any], arguments: argparse.Namespace) -> TokenReport:
    """Count. transformers comes without torch, which a tokenizer has no use for: that would be most of the start."""
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]  # the import system's own sign for "not installed"
    stay_offline(os.environ)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # it would say that there is no PyTorch
    from vramscope.loading import tokens  # noqa: PLC0415 - only now, see above

    config = optional_config(directory)
    tokenizer = tokens.load_tokenizer(directory)
    if isinstance(given, str):
        text, count = given, tokens.count_tokens(tokenizer, given)
    else:
        text, count = tokens.count_chat(tokenizer, **given, generation_prompt=arguments.generation_prompt)
    vocabulary = tokens.vocabulary_of(tokenizer)
    return TokenReport(
        source=arguments.source,
        text=text,
        is_chat=not isinstance(given, str),
        ids=count.ids,
        tokens=tuple(tokenizer.convert_ids_to_tokens(count.ids)),
        spans=count.spans,
        count=count.tokens,
        count_with_special=count.tokens_with_special,
        spelled_special=count.spelled_special,
        characters=count.characters,
        words=count.words,
        context_window=tokens.context_window(config, tokenizer),
        vocabulary=vocabulary.base,
        added=vocabulary.added,
        embedding_rows=embedding_rows(config),
    )


def _as_json(report: TokenReport) -> dict[str, Any]:
    return {
        "ids": report.ids,
        "tokens": report.tokens,
        "count": report.count,
        "count_with_special": report.count_with_special,
        "characters": report.characters,
        "words": report.words,
        "context_window": report.context_window,
        "share": report.share,
        "tokenizer": {
            "vocabulary": report.vocabulary,
            "added": report.added,
            "with_added": report.vocabulary + report.added,
            "embedding_rows": report.embedding_rows,
        },
    }


@contextmanager
def _directory(arguments: argparse.Namespace) -> Iterator[Path]:
    """Where the tokenizer's files are. Those of a synthetic model are made on the spot: its weights are not needed."""
    source: str = arguments.source
    if not source.startswith(SYNTHETIC):
        yield find_tokenizer(source, default_hub_cache(os.environ), revision=arguments.revision)
        return
    with tempfile.TemporaryDirectory(prefix="vramscope-") as directory:
        for name, text in synthetic_files(source.removeprefix(SYNTHETIC)).items():
            (Path(directory) / name).write_text(text, encoding="utf-8")
        yield Path(directory)


def _read_text(argument: str) -> str:
    if argument != STDIN:
        return argument
    content = _read(STDIN)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise SourceError(f"standard input: not UTF-8 text (byte {error.start})") from None


def _read_chat(argument: str) -> dict[str, Any]:
    """The messages, and the tools, of a JSON file: a list of messages, or an object that has them."""
    path = Path("standard input" if argument == STDIN else argument)
    chat = parse(_read(argument), path)
    chat = chat if isinstance(chat, dict) else {"messages": chat}
    messages, tools = chat.get("messages"), chat.get("tools")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages) or not messages:
        expected = 'expected a list of messages such as [{"role": "user", "content": "Hello"}], or {"messages": […]}'
        raise SourceError(f"{path}: {expected}")
    for number, message in enumerate(messages):
        if not isinstance(message.get("role"), str):
            raise SourceError(f'{path}: messages[{number}]: expected a "role" such as "user"')
    if tools is not None and not isinstance(tools, list):
        raise SourceError(f'{path}: expected "tools" to be a list')
    return {"messages": messages, "tools": tools}


def _read(argument: str) -> bytes:
    """A file or standard input, whole. Raises SourceError, for one that is too long too."""
    try:
        if argument == STDIN:
            content = sys.stdin.buffer.read(MAX_TEXT_BYTES + 1)
        else:
            with Path(argument).open("rb") as file:
                content = file.read(MAX_TEXT_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SourceError(f"{'standard input' if argument == STDIN else argument}: {reason}") from None
    if len(content) > MAX_TEXT_BYTES:
        raise SourceError(f"expected a text of at most {MAX_TEXT_BYTES:,} bytes, got a longer one")
    return content

"""JSON from files that strangers wrote: every way in which it can be wrong is a SourceError that names the file."""

import json
from collections.abc import Callable
from pathlib import Path
from stat import S_ISREG
from typing import Any, NoReturn

from vramscope.anatomy.foreign import missing, what_it_is
from vramscope.errors import SourceError

LIMIT_BYTES = 100_000_000
_SHOWN = 200
_START_BYTES = 512

Pairs = list[tuple[str, Any]]


def read_object(path: Path) -> dict[str, Any]:
    """Read the JSON object in the file `path`."""
    value = parse(_read_text(path), path)
    if not isinstance(value, dict):
        raise SourceError(f"{path}: expected a JSON object, got {kind_of(value)}")
    return value


def parse(text: bytes, path: Path, *, what: str = "file", unique_keys: bool = False) -> Any:
    """Parse `text`, which is the `what` of `path`; with `unique_keys` an object may not say a key twice."""
    hook = _unique(path, what) if unique_keys else None
    whole = _whole if b"-0" in text else None
    try:
        return json.loads(
            text.decode("utf-8"), object_pairs_hook=hook, parse_constant=_refuse_constant, parse_int=whole
        )
    except UnicodeDecodeError as error:
        raise SourceError(f"{path}: the {what} is not UTF-8 text (byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise SourceError(f"{path}: the {what} is not valid JSON: {_where(error)}") from None
    except RecursionError:
        raise SourceError(f"{path}: the {what} is not valid JSON: it is nested too deeply") from None
    except ValueError:  # int() refuses numbers of more than 4,300 digits
        raise SourceError(f"{path}: the {what} is not valid JSON: it holds a number too long to be one") from None


def kind_of(value: object) -> str:
    """Name what JSON calls a value, for messages."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


def shown(value: object) -> str:
    """Show a value in a message: long ones are cut, and a number of any length is safe to show."""
    try:
        text = repr(value)
    except ValueError:  # str() of a number of more than 4,300 digits
        return "a number too long to show"
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "…"


def _read_text(path: Path) -> bytes:
    try:
        status = path.stat()
        if not S_ISREG(status.st_mode):
            raise SourceError(f"{path}: not a regular file")
        if status.st_size > LIMIT_BYTES:
            raise SourceError(f"{path}: {status.st_size:,} bytes are too many for a JSON file (limit {LIMIT_BYTES:,})")
        text = path.read_bytes()
    except FileNotFoundError:
        raise missing(path) from None
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror or error}") from None
    if known := what_it_is(text[:_START_BYTES], wanted="JSON"):
        raise SourceError(f"{path}: {known.what}", hint=known.hint)
    if not text.strip():
        raise SourceError(
            f"{path}: the file is empty", hint="an interrupted download leaves such files; fetch it again"
        )
    return text


def _unique(path: Path, what: str) -> Callable[[Pairs], dict[str, Any]]:
    def build(pairs: Pairs) -> dict[str, Any]:
        built = dict(pairs)
        if len(built) < len(pairs):
            seen: set[str] = set()
            twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
            raise SourceError(f"{path}: the {what} says the key {shown(twice)} twice")
        return built

    return build


def _refuse_constant(word: str) -> NoReturn:
    raise json.JSONDecodeError(f"{word} is no JSON", "", 0)


def _whole(digits: str) -> float:
    """Read a whole number; -0 is none, as to the reference's parser (serde)."""
    return -0.0 if digits == "-0" else int(digits)


def _where(error: json.JSONDecodeError) -> str:
    return f"{error.msg} at line {error.lineno}, column {error.colno}" if error.doc else error.msg

"""Bytes of a plan file to text: UTF-8 without characters that YAML forbids, or one problem with its line and column."""

import re

from vramscope.plan.problems import PlanError, Problem

MAX_FILE_BYTES = 1024 * 1024

# What YAML calls printable (https://yaml.org/spec/1.2.2/#51-character-set), without the byte order mark, and without
# what ends a line in YAML 1.1 and none in 1.2: PyYAML would take it out of a text, and end a comment with it.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
_LINE_END = ' (a line end to some; in a text, write "{0}", in double quotes)'
_EXPLAINED = {
    "\0": " (NUL)",
    "\ufeff": " (a byte order mark, which may stand only at the start of the file)",
    "\x85": _LINE_END.format("\\x85"),
    "\u2028": _LINE_END.format("\\u2028"),
    "\u2029": _LINE_END.format("\\u2029"),
}
_LINES = re.compile("\r\n?|\n")


def decode(content: bytes, path: str) -> str:
    """The text of a plan file, without the byte order mark that it may begin with; raises PlanError."""
    if len(content) > MAX_FILE_BYTES:
        message = f"expected a file of at most {MAX_FILE_BYTES:,} bytes, got a larger one (a repeat block saves steps)"
        raise _error("", path, message)
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _error("", path, "expected UTF-8 text, got UTF-16")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # With a byte order mark, `start` counts from behind it.
        rest = content.removeprefix(b"\xef\xbb\xbf")
        before = rest[: error.start].decode(errors="replace")
        raise _error(before, path, f"expected UTF-8 text, got the byte 0x{rest[error.start]:02x}") from None
    if match := _FORBIDDEN.search(text):
        message = f"expected printable text, got the character U+{ord(match[0]):04X}{_EXPLAINED.get(match[0], '')}"
        raise _error(text[: match.start()], path, message)
    return text


def _error(before: str, path: str, message: str) -> PlanError:
    """A problem with the character that follows `before`."""
    lines = _LINES.split(before)
    return PlanError([Problem(path=path, line=len(lines), column=len(lines[-1]) + 1, message=message)])

"""Logging: a line is an event name and fields, as text for people or as JSON for machines.

logger.info("worker_ready", extra={"pid": 17, "backend": "cuda"})
2026-01-31T12:00:00.000Z INFO vramscope.report.event_log worker_ready pid=17 backend=cuda
"""

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

# What a record has of its own; everything else came in by `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# Libraries that tell about each request or connection what our own events say better.
_QUIET = ("hypercorn", "asyncio", "httpx", "httpcore", "urllib3", "filelock")


def configure(form: Literal["text", "json"], level: int | str, stream: TextIO) -> None:
    """Send every log line of the process to `stream`, and nowhere else. Called once, by the program's entry."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root = logging.getLogger()
    for old in root.handlers[:]:
        root.removeHandler(old)
    root.addHandler(handler)
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(capture=True)


class TextFormatter(logging.Formatter):
    """One line: time, level, logger, event name, fields as key=value."""

    def format(self, record: logging.LogRecord) -> str:
        fields = " ".join(f"{key}={_text(value)}" for key, value in _fields(record, self).items())
        line = f"{_time(record)} {record.levelname} {record.name} {_one_line(record.getMessage())}"
        return f"{line} {fields}" if fields else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, event, and the fields beside them."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": _time(record),
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
        }
        # A field never replaces what every line has.
        fields = {f"{key}_" if key in line else key: value for key, value in _fields(record, self).items()}
        return json.dumps({**line, **fields}, default=str, ensure_ascii=False)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord, formatter: logging.Formatter) -> dict[str, Any]:
    fields = {key: value for key, value in vars(record).items() if key not in _OWN}
    if record.exc_info:
        fields["exception"] = formatter.formatException(record.exc_info)
    if record.stack_info:
        fields["stack"] = record.stack_info
    return fields


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, default=str, ensure_ascii=False)
    text = str(value)
    bare = text and text.isprintable() and not any(mark in text for mark in ' ="')
    return text if bare else json.dumps(text, ensure_ascii=False)


def _one_line(message: str) -> str:
    """Keep foreign messages on one line, and free of control characters that a terminal would obey."""
    return message if message.isprintable() else json.dumps(message, ensure_ascii=False)

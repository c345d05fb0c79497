"""Logging: a line is an event name and fields, as text for people or as JSON for machines.

logger.info("worker_ready", extra={"pid": 17, "backend": "cuda"})
2026-01-31T12:00:00.000Z INFO vramscope.report.event_log worker_ready pid=17 backend=cuda
"""

import contextlib
import json
import logging
import queue
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

# What a record has of its own; everything else came in by `extra`.
_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
# Libraries that tell about each request or connection what our own events say better.
WAITING_LIMIT = 10_000
CLOSE_SECONDS = 1.0
_QUIET = ("hypercorn", "asyncio", "httpx", "httpcore", "urllib3", "filelock")


class Listener:
    """Writes log lines in a thread of its own: a stream that nobody reads must not stop the process.

    From its making to its close it takes the place of the root logger's handlers.
    """

    def __init__(self, handler: logging.Handler) -> None:
        self._waiting: queue.Queue[logging.LogRecord | None] = queue.Queue(WAITING_LIMIT)
        self._handler = handler
        self._thread = threading.Thread(target=self._write, name="log", daemon=True)
        self._thread.start()
        root = logging.getLogger()
        self._hand, self._replaced, self._level = _Hand(self), root.handlers[:], root.level
        root.handlers[:] = [self._hand]

    def put(self, record: logging.LogRecord) -> None:
        """Hand over a record; one that does not fit any more is dropped."""
        with contextlib.suppress(queue.Full):
            self._waiting.put_nowait(record)

    def close(self) -> bool:
        """Write what waits, for a moment, and leave the root logger as it was; False if a write is stuck."""
        root = logging.getLogger()
        if self._hand in root.handlers:
            root.handlers[:] = self._replaced
            root.setLevel(self._level)
            logging.captureWarnings(capture=False)
        with contextlib.suppress(queue.Full):
            self._waiting.put(None, timeout=CLOSE_SECONDS)
        self._thread.join(CLOSE_SECONDS)
        return not self._thread.is_alive()

    def _write(self) -> None:
        while (record := self._waiting.get()) is not None:
            self._handler.handle(record)


class _Hand(logging.Handler):
    """The root's handler: passes records to the listener."""

    def __init__(self, listener: Listener) -> None:
        super().__init__()
        self._listener = listener

    def emit(self, record: logging.LogRecord) -> None:
        self._listener.put(record)


def configure(form: Literal["text", "json"], level: int | str, stream: TextIO) -> Listener:
    """Send every log line of the process to `stream`, and nowhere else. Called once, by the program's entry.

    Close the listener at the end, so that the last lines are written.
    """
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    listener, root = Listener(handler), logging.getLogger()
    root.setLevel(level)
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(capture=True)
    return listener


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

import io
import json
import logging
import subprocess
import sys
import warnings

import pytest

from vramscope import logs


@pytest.fixture
def lines():
    """Whatever `configure` changes about the process is put back afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name in logs._QUIET:
        logging.getLogger(name).setLevel(logging.NOTSET)


def told(stream, listener):
    """The lines, once all are written: logging is done in a thread."""
    assert listener.close()
    return stream.getvalue().splitlines()


def test_a_text_line_is_time_level_logger_event_and_fields(lines):
    listener = logs.configure("text", "INFO", lines)
    logging.getLogger("vramscope.some").info("step_ended", extra={"step": "load qwen", "seconds": 1.25, "cycle": 3})
    (line,) = told(lines, listener)
    time, rest = line.split(" ", 1)
    assert rest == 'INFO vramscope.some step_ended step="load qwen" seconds=1.25 cycle=3'
    assert time.endswith("Z")
    assert len(time) == len("2026-01-31T12:00:00.000Z")


def test_a_json_line_is_one_object_with_the_fields_beside_the_event(lines):
    listener = logs.configure("json", "INFO", lines)
    logging.getLogger("vramscope.some").warning("worker_exited", extra={"pid": 17, "level": "odd", "models": {"a": 1}})
    (line,) = told(lines, listener)
    found = json.loads(line)
    assert found.pop("time")
    assert found == {
        "level": "WARNING",
        "logger": "vramscope.some",
        "event": "worker_exited",
        "pid": 17,
        "level_": "odd",
        "models": {"a": 1},
    }


@pytest.mark.parametrize("form", ["text", "json"])
def test_whatever_happens_is_one_line_without_control_characters(form, lines):
    listener = logs.configure(form, "INFO", lines)
    try:
        int("one\ntwo")
    except ValueError:
        logging.getLogger("foreign").exception("broke\nin \x1b[31mtwo", extra={"name_": "a\nb\x07"})
    (line,) = told(lines, listener)
    assert line.isprintable()
    assert "ValueError: invalid" in line


def test_what_is_below_the_level_is_not_told(lines):
    listener = logs.configure("text", "WARNING", lines)
    logging.getLogger("vramscope").info("quiet")
    assert told(lines, listener) == []


def test_the_servers_own_chatter_is_left_out_and_its_errors_are_not(lines):
    listener = logs.configure("text", "DEBUG", lines)
    logging.getLogger("hypercorn.error").info("Running on http://127.0.0.1:1 (CTRL + C to quit)")
    logging.getLogger("hypercorn.error").error("broken")
    assert len(told(lines, listener)) == 1


def test_configuring_again_replaces_the_stream(lines):
    first = logs.configure("text", "INFO", io.StringIO())
    listener = logs.configure("text", "INFO", lines)
    logging.getLogger("vramscope").info("once")
    assert len(told(lines, listener)) == 1
    assert first.close()


def test_a_listener_that_is_closed_leaves_the_root_logger_as_it_was(lines):
    root = logging.getLogger()
    before, level, show = root.handlers[:], root.level, warnings.showwarning
    listener = logs.configure("text", "DEBUG", lines)
    assert root.handlers != before
    assert listener.close()
    assert (root.handlers, root.level, warnings.showwarning) == (before, level, show)
    assert listener.close(), "again, with no harm"


def test_warnings_are_log_lines(lines):
    listener = logs.configure("text", "INFO", lines)
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=True)
        warnings.warn("old thing", UserWarning, stacklevel=1)
    assert "py.warnings" in told(lines, listener)[0]


def test_importing_sets_no_handlers():
    program = "import logging, vramscope.logs, vramscope.report.event_log; print(logging.getLogger().handlers)"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout == b"[]\n"

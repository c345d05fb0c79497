"""`vramscope run` with deadlines that a fault run can wait for, which counts cycles from the inside.

Its journal keeps so little waiting that a disk which is full for a moment costs events, and its files are small.

The last line of its output is that count, as JSON.
"""

import argparse
import asyncio
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

from vramscope import logs
from vramscope.app import Run
from vramscope.cli import run as command
from vramscope.events import CycleEnded, CycleStarted, Event
from vramscope.journal.file import JournalFile, Limits
from vramscope.journal.writer import JournalWriter
from vramscope.settings import Deadlines
from vramscope.web.server import url

COUNT = "count: "
HEARTBEAT_SECONDS = 4.0
DEADLINES = Deadlines(heartbeat=HEARTBEAT_SECONDS, restart_backoff=0.1, restart_backoff_limit=1.0)
JOURNAL = Limits(file_bytes=256 << 10, files=1000)
WAITING_LIMIT, RETRY_SECONDS = 100, 0.1


class Cycles:
    """A subscriber that counts how many cycles began, and how those ended that did."""

    def __init__(self) -> None:
        self.started = 0
        self.ended: Counter[str] = Counter()

    def on_event(self, event: Event) -> None:
        if isinstance(event, CycleStarted):
            self.started += 1
        elif isinstance(event, CycleEnded):
            self.ended[event.outcome.value] += 1


def open_journal(path: Path) -> JournalWriter:
    file = JournalFile(path, JOURNAL)
    file.start()
    journal = JournalWriter(file, waiting_limit=WAITING_LIMIT, retry_seconds=RETRY_SECONDS)
    journal.start()
    return journal


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    command.add_arguments(parser)
    log = logs.configure("text", "WARNING", sys.stderr)
    arguments = parser.parse_args()
    journal, arguments.journal = open_journal(arguments.journal), None
    settings = replace(command._settings(arguments), deadlines=DEADLINES, log_events=True, journal=journal)
    session, cycles = Run(settings), Cycles()
    session.subscribe(cycles.on_event)
    for listener in settings.listeners:
        sys.stdout.write(f"{url(listener)}\n")
    sys.stdout.flush()
    code = asyncio.run(session.run(lambda: None))
    journal.close()
    log.close()
    count = {"started": cycles.started, "ended": cycles.ended, "dropped": journal.health().dropped}
    sys.stdout.write(f"{COUNT}{json.dumps(count)}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())

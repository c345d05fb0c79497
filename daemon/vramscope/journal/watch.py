"""Tells once a second how the journal is, and logs when that changes."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from vramscope.events import Event, JournalSampled
from vramscope.journal.writer import JournalWriter

logger = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0


async def watch_journal(writer: JournalWriter, publish: Callable[[Event], None]) -> None:
    """Publish a JournalSampled where it says something new, until cancelled."""
    known: JournalSampled | None = None
    while True:
        now = writer.health()
        if known is None or replace(now, at=known.at) != known:
            _log(known.reason if known else "", now)
            publish(now)
            known = now
        await asyncio.sleep(INTERVAL_SECONDS)


def _log(before: str, now: JournalSampled) -> None:
    if now.reason and now.reason != before:
        logger.warning("journal_not_written", extra={"reason": now.reason})
    elif before and not now.reason:
        logger.warning("journal_written_again", extra={"events_lost": now.dropped})

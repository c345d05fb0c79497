"""Lets the threads that read a model leave the processor to whoever answers a scrape."""

import os
import threading
from contextlib import suppress

NICENESS = 10


def give_way() -> None:
    """Lower the priority of this thread, and of no other.

    The readers keep every core busy, and an ordinary thread would finish its turn, some milliseconds, before the
    supervisor may answer a scrape. It costs nothing while a core is free. SCHED_IDLE (sched(7)) does no more for
    scrapes, and would let any busy process beside it starve a load. Where a system does not allow it, the thread stays
    as it is.
    """
    with suppress(OSError):
        thread = threading.get_native_id()  # on Linux each has a priority of its own
        os.setpriority(os.PRIO_PROCESS, thread, max(NICENESS, os.getpriority(os.PRIO_PROCESS, thread)))

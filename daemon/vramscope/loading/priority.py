"""Lets the threads that read a model take only the processor time that nobody else in vramscope wants."""

import os
from contextlib import suppress


def give_way() -> None:
    """Have the kernel run this thread only where the core has nothing else to do, and put it aside at once.

    SCHED_IDLE, sched(7): it costs nothing while a core is free. The readers keep every core busy, and an ordinary
    thread would finish its turn, some milliseconds, before the supervisor may answer a scrape. Other containers,
    services and terminals get their share of the cores as before: the kernel divides among those first. Where a system
    does not allow it, the thread stays as it is.
    """
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))  # 0 is the calling thread

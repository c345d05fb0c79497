"""Who reads a model gives way to everybody else, and nobody else does."""

import os
import threading

import torch

from vramscope.loading.reader import Reader
from vramscope.loading.spans import ArenaLayout


def test_a_reading_thread_gives_way_and_the_others_do_not():
    before, found = os.sched_getscheduler(0), []
    reader = Reader(ArenaLayout(), torch.empty(0, dtype=torch.uint8), {})

    def read() -> None:
        reader.expect_thread()
        reader.run()
        found.append(os.sched_getscheduler(0))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    reader.raise_error()
    assert found == [os.SCHED_IDLE]
    assert os.sched_getscheduler(0) == before != os.SCHED_IDLE

"""Who reads a model gives way to everybody else, and nobody else does."""

import os
import threading

from vramscope.loading.priority import NICENESS
from vramscope.loading.reader import Reader
from vramscope.loading.spans import ArenaLayout


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_a_reading_thread_gives_way_and_the_others_do_not():
    before, found = niceness(), []
    reader = Reader(ArenaLayout(), memoryview(bytearray()), {})

    def read() -> None:
        reader.expect_thread()
        reader.run()
        found.append(niceness())

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()
    reader.raise_error()
    assert found == [max(before, NICENESS)]
    assert niceness() == before

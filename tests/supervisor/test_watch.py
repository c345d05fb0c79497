"""A watch whose reading fails, or never comes back."""

import asyncio
import threading
from pathlib import Path

from vramscope.supervisor.watch import Watch

INTERVAL_SECONDS = 0.02


def test_a_reading_that_raises_is_logged_and_the_next_one_is_delivered(tmp_path: Path, caplog) -> None:
    turns = iter([RuntimeError("strange"), "good"])

    def read() -> str:
        turn = next(turns)
        if isinstance(turn, Exception):
            raise turn
        return turn

    async def body() -> tuple[str, list[str]]:
        got: asyncio.Future[tuple[str, list[str]]] = asyncio.get_running_loop().create_future()
        watch = Watch(lambda: (tmp_path / "file",), read, lambda *told: got.set_result(told), INTERVAL_SECONDS)
        watch.ask("first")
        watch.start()
        while not caplog.records:  # noqa: ASYNC110 - told in another thread
            await asyncio.sleep(INTERVAL_SECONDS)
        watch.ask("second")
        try:
            async with asyncio.timeout(60):
                return await got
        finally:
            watch.stop()

    assert asyncio.run(body()) == ("good", ["second"])
    assert "strange" in caplog.text


def test_a_file_system_that_hangs_keeps_nobody(tmp_path: Path) -> None:
    hanging, over = threading.Event(), threading.Event()

    def read() -> None:
        hanging.set()
        over.wait(60)

    async def body() -> None:
        watch = Watch(lambda: (tmp_path,), read, lambda *_told: None, INTERVAL_SECONDS)
        watch.start()
        while not hanging.is_set():  # noqa: ASYNC110 - as above
            await asyncio.sleep(INTERVAL_SECONDS)
        watch.stop()

    asyncio.run(asyncio.wait_for(body(), 50))  # and the loop is closed while the thread still hangs
    assert not over.is_set()
    over.set()

"""Work that is one long call into a library, and still ends at once when its step is cancelled."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from vramscope.errors import StepError

CHECK_SECONDS = 0.05

Result = TypeVar("Result")


def abandonable(work: Callable[[], Result], check: Callable[[], None]) -> Result:
    """What `work` returns or raises; meanwhile `check` is asked, and what that raises leaves the work to itself.

    The work runs in a thread, which cannot be stopped: it ends on its own, or with the process, and what it returns is
    dropped. So it must change nothing that others see. A panic inside a library in Rust is a StepError.
    """
    done: Future[Result] = Future()
    threading.Thread(target=_settle, args=(done, work), name="abandonable", daemon=True).start()
    while not done.done():
        check()
        wait([done], timeout=CHECK_SECONDS)
    failure = done.exception()
    if failure is not None and not isinstance(failure, Exception):
        raise StepError(f"a library gave up: {failure}") from None
    return done.result()


def _settle(done: "Future[Result]", work: Callable[[], Result]) -> None:
    try:
        done.set_result(work())
    except BaseException as error:  # noqa: BLE001 - it is raised where the result is awaited
        done.set_exception(error)

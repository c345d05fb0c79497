"""Signals become facts that the loop acts on; a handler does nothing else."""

import asyncio
import signal


class Stop:
    """What signals ask for: TERM and the first INT to stop in order, a second INT at once, HUP to reload."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.forced = asyncio.Event()
        self.reload = asyncio.Event()
        self.interrupted = False

    def install(self, *, reloads: bool) -> None:
        """Listen for signals in the running loop; HUP stays what it was for a run that reads its plan once."""
        loop = asyncio.get_running_loop()
        if reloads:
            loop.add_signal_handler(signal.SIGHUP, self.reload.set)
        loop.add_signal_handler(signal.SIGTERM, self.requested.set)
        loop.add_signal_handler(signal.SIGINT, self._on_interrupt)

    def _on_interrupt(self) -> None:
        if self.interrupted:
            self.forced.set()
        self.interrupted = True
        self.requested.set()

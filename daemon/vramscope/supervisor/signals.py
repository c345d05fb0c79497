"""Signals become facts that the loop acts on; a handler does nothing else."""

import asyncio
import signal


class Stop:
    """How the run was asked to stop: TERM and the first INT stop it in order, a second INT at once."""

    def __init__(self) -> None:
        self.requested = asyncio.Event()
        self.forced = asyncio.Event()
        self.interrupted = False

    def install(self) -> None:
        """Listen for SIGTERM and SIGINT in the running loop."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.requested.set)
        loop.add_signal_handler(signal.SIGINT, self._on_interrupt)

    def _on_interrupt(self) -> None:
        if self.interrupted:
            self.forced.set()
        self.interrupted = True
        self.requested.set()

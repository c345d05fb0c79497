"""Tells the service manager how the daemon is: ready, alive, stopping, and what it does (sd_notify(3)).

One datagram a message, to the socket that NOTIFY_SOCKET names; where it is not set, nobody listens and nothing is sent.
WATCHDOG=1 comes from the event loop, so that a loop that hangs is missed and the manager starts the daemon anew.
"""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping

from vramscope.events import Event, PlanEnded, StepStarted

logger = logging.getLogger(__name__)

READY, ALIVE, STOPPING = "READY=1", "WATCHDOG=1", "STOPPING=1"
# Messages within one interval of the watchdog; the manual asks for two, and a busy loop may come late.
BEATS = 3
IDLE_SECONDS = 3600.0


class ServiceManager:
    """The manager that started us, as the environment names it. Sending never waits, and never fails a run."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._address = _address(environment.get("NOTIFY_SOCKET", ""))
        self._interval_seconds = _interval(environment)
        self._is_told = False

    def on_event(self, event: Event) -> None:
        """Say what the daemon does, as `systemctl status` shows it."""
        match event:
            case StepStarted():
                self._send(f"STATUS=cycle {event.cycle}: {event.step}")
            case PlanEnded():
                self._send(f"STATUS=the plan is over ({event.outcome}), serving")

    async def watch(self, serving: asyncio.Event) -> None:
        """Say that the daemon is ready once it serves, and from then on that it lives, until cancelled."""
        if not self._address:
            return
        await serving.wait()
        self._send(READY)
        while True:
            await asyncio.sleep(self._interval_seconds or IDLE_SECONDS)
            if self._interval_seconds:
                self._send(ALIVE)

    def stopping(self) -> None:
        self._send(f"{STOPPING}\nSTATUS=ending")

    def _send(self, message: str) -> None:
        if not self._address:
            return
        try:
            with socket.socket(
                socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
            ) as sender:
                sender.sendto(message.encode(errors="backslashreplace"), self._address)
        except OSError as error:
            if not self._is_told:
                logger.warning("service_manager_not_told", extra={"reason": error.strerror or str(error)})
            self._is_told = True


def _address(text: str) -> str:
    """The socket's address: a path, or an abstract name, which is written with @; empty for anything else."""
    if text.startswith("@"):
        return f"\0{text[1:]}"
    return text if text.startswith("/") else ""


def _interval(environment: Mapping[str, str]) -> float | None:
    """Seconds between two messages for the watchdog; None where it is off, or watches another process."""
    microseconds = environment.get("WATCHDOG_USEC", "")
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    return int(microseconds) / 1e6 / BEATS if microseconds.isdecimal() and int(microseconds) else None

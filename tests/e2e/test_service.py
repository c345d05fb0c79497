"""A daemon under a service manager, which here is a datagram socket."""

import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.daemon import wait_for

PLAN = "version: 1\nsteps:\n  - {wait: 60s, name: the wait}\n"


class Manager:
    """Reads what it is told, as it comes: the queue of a datagram socket is short."""

    def __init__(self, path: Path) -> None:
        self.messages: list[str] = []
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(30)
        self._socket.close()

    def _read(self) -> None:
        while message := self._socket.recv(4096):
            self.messages.append(message.decode())


@pytest.fixture
def manager(tmp_path, monkeypatch) -> Iterator[Manager]:
    listening = Manager(tmp_path / "notify")
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    monkeypatch.setenv("WATCHDOG_USEC", "300000")
    yield listening
    listening.close()


def test_the_manager_follows_a_daemon_from_ready_to_stopping(manager, start, write_plan):
    daemon = start(write_plan(PLAN), "--device", "simulated")
    wait_for("the first message", lambda: manager.messages)
    assert manager.messages[0] == "READY=1"
    assert daemon.get("/healthz")
    wait_for("the step's status", lambda: "STATUS=cycle 1: the wait" in manager.messages)
    beats = manager.messages.count("WATCHDOG=1")
    wait_for("more beats", lambda: manager.messages.count("WATCHDOG=1") > beats + 1)
    assert daemon.stop(signal.SIGTERM) == 0
    wait_for("the end", lambda: "STOPPING=1\nSTATUS=ending" in manager.messages)


def test_a_manager_that_is_not_there_ends_no_run(start, write_plan, monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", "/nonexistent/notify")
    daemon = start(write_plan(PLAN), "--device", "simulated")
    assert daemon.get("/healthz")
    assert daemon.stop(signal.SIGTERM) == 0

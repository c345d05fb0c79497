"""What the service manager hears, on a real datagram socket."""

import asyncio
import os
import socket
import time

import pytest

from vramscope.events import Outcome, PlanEnded, StepStarted
from vramscope.supervisor.service import ServiceManager

STEP = StepStarted(at=0.0, step="load qwen", kind="load", model="qwen", cycle=3, line=9)


@pytest.fixture(params=["path", "abstract"])
def manager(request, tmp_path):
    """A manager's socket and the name under which NOTIFY_SOCKET tells of it."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@vramscope-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(f"\0{name[1:]}" if name.startswith("@") else name)
        listening.settimeout(30)
        yield listening, name


def heard(listening) -> list[str]:
    """Everything that has arrived."""
    listening.settimeout(0)
    messages = []
    while True:
        try:
            messages.append(listening.recv(4096).decode())
        except BlockingIOError:
            listening.settimeout(30)
            return messages


def test_steps_and_the_end_are_told(manager):
    listening, name = manager
    service = ServiceManager({"NOTIFY_SOCKET": name})
    service.on_event(STEP)
    service.on_event(PlanEnded(at=1.0, outcome=Outcome.SUCCEEDED))
    service.stopping()
    assert heard(listening) == [
        "STATUS=cycle 3: load qwen",
        "STATUS=the plan is over (succeeded), serving",
        "STOPPING=1\nSTATUS=ending",
    ]


def test_it_is_ready_once_it_serves_and_lives_from_then_on(manager):
    listening, name = manager
    service = ServiceManager({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "60000", "WATCHDOG_PID": str(os.getpid())})

    async def body():
        serving = asyncio.Event()
        watching = asyncio.create_task(service.watch(serving))
        await asyncio.sleep(0.1)
        before = heard(listening)
        serving.set()
        messages = [await asyncio.to_thread(listening.recv, 4096) for _ in range(3)]
        watching.cancel()
        return before, messages

    assert asyncio.run(asyncio.wait_for(body(), 60)) == ([], [b"READY=1", b"WATCHDOG=1", b"WATCHDOG=1"])


def test_a_loop_that_hangs_is_not_alive(manager):
    listening, name = manager
    service = ServiceManager({"NOTIFY_SOCKET": name, "WATCHDOG_USEC": "30000"})

    async def body():
        serving = asyncio.Event()
        serving.set()
        watching = asyncio.create_task(service.watch(serving))
        for _ in range(2):
            await asyncio.to_thread(listening.recv, 4096)
        heard(listening)
        time.sleep(0.3)  # noqa: ASYNC251 - this is the hang
        hung = heard(listening)
        watching.cancel()
        return hung

    assert asyncio.run(asyncio.wait_for(body(), 60)) == []


@pytest.mark.parametrize(
    "variables", [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}]
)
def test_a_watchdog_that_is_off_or_another_s_hears_nothing(manager, variables):
    listening, name = manager
    service = ServiceManager({"NOTIFY_SOCKET": name, **variables})

    async def body():
        serving = asyncio.Event()
        serving.set()
        watching = asyncio.create_task(service.watch(serving))
        await asyncio.sleep(0.1)
        watching.cancel()

    asyncio.run(body())
    assert heard(listening) == ["READY=1"]


@pytest.mark.parametrize("name", ["", "relative", "vsock:2:1234"])
def test_without_a_socket_that_is_known_nothing_is_sent(name, caplog):
    service = ServiceManager({"NOTIFY_SOCKET": name})
    service.on_event(STEP)
    service.stopping()
    asyncio.run(asyncio.wait_for(service.watch(asyncio.Event()), 60))
    assert caplog.messages == []


def test_a_manager_that_is_gone_is_told_of_once(tmp_path, caplog):
    service = ServiceManager({"NOTIFY_SOCKET": str(tmp_path / "gone")})
    service.on_event(STEP)
    service.on_event(STEP)
    assert caplog.messages == ["service_manager_not_told"]


def test_a_manager_that_does_not_read_holds_nothing_up(manager):
    """A queue of datagrams is short; what does not fit is lost, and the run goes on."""
    _, name = manager
    service = ServiceManager({"NOTIFY_SOCKET": name})
    for _ in range(5_000):
        service.on_event(STEP)

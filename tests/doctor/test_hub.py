import threading
import time
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from vramscope.doctor._frame import State
from vramscope.doctor.hub import CHECK


class Hub(ThreadingHTTPServer):
    """Answers every request with this status and this Date."""

    status = 200
    date = 0.0
    asked = 0


class Handler(BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.server.asked += 1
        self.send_response_only(self.server.status)
        self.send_header("Date", formatdate(self.server.date, usegmt=True))
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def hub():
    server = Hub(("127.0.0.1", 0), Handler)
    server.date = float(int(time.time()))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def environment(server, **more):
    return {"HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", **more}


def test_it_is_not_asked_unless_it_is_wanted(machine, hub):
    assert CHECK.look(machine(environment=environment(hub))).state is State.NOTE
    assert hub.asked == 0


@pytest.mark.parametrize("status", [200, 401, 429])
def test_a_hub_that_answers_anything_is_there(machine, hub, status):
    hub.status = status
    assert CHECK.look(machine(environment=environment(hub), online=True)).state is State.OK
    assert hub.asked == 1


def test_a_clock_that_is_off_shows(machine, hub):
    found = CHECK.look(machine(environment=environment(hub), online=True, clock=lambda: hub.date + 7200))
    assert found.state is State.WARNING
    assert "our clock is 2h 0m 0s ahead of its" in found.found


def test_offline_by_the_environment_is_told(machine, hub):
    found = CHECK.look(machine(environment=environment(hub, HF_HUB_OFFLINE="1"), online=True))
    assert (found.state, found.advice) == (State.NOTE, "unset it for plans that download")


def test_nobody_there_is_a_warning(machine, hub):
    environment_then = environment(hub)
    hub.socket.close()
    found = CHECK.look(machine(environment=environment_then, online=True))
    assert found.state is State.WARNING
    assert "does not answer" in found.found


def test_an_endpoint_that_is_no_address_is_told(machine):
    found = CHECK.look(machine(environment={"HF_ENDPOINT": "file:///etc"}, online=True))
    assert found.found == "HF_ENDPOINT=file:///etc is no address"


def test_a_password_in_the_address_is_not_shown(machine, hub):
    address = f"http://mirror:sesame@127.0.0.1:{hub.server_port}/"
    found = CHECK.look(machine(environment={"HF_ENDPOINT": address}, online=True))
    assert (found.state, found.found) == (State.OK, f"http://127.0.0.1:{hub.server_port} answers")


@pytest.mark.parametrize("address", ["http://[::bad", "mirror:sesame@example.org", "https://", "file:///etc"])
def test_an_odd_address_is_one_warning_with_advice(machine, address):
    found = CHECK.look(machine(environment={"HF_ENDPOINT": address}, online=True))
    assert found.state is State.WARNING
    assert "is no address" in found.found
    assert "sesame" not in found.found

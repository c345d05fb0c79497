import contextlib
import logging
import socket
import time
from http.client import HTTPConnection, HTTPException

import pytest
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.settings import SettingCodes
from tests.daemon import wait_for

from vramscope.errors import ListenError, UsageError
from vramscope.web.server import DEFAULT_LIMITS, Address, Limits, bind, parse_address, url

HALF_A_REQUEST = b"GET /metrics HTTP/1.1\r\nHost: vramscope\r\n"
A_REQUEST = HALF_A_REQUEST + b"\r\n"


def stalled_http_2() -> bytes:
    """A request whose answer may have no byte: the window of its stream is closed."""
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.update_settings({SettingCodes.INITIAL_WINDOW_SIZE: 0})
    headers = {":method": "GET", ":path": "/metrics", ":scheme": "http", ":authority": "vramscope"}
    client.send_headers(1, list(headers.items()), end_stream=True)
    return client.data_to_send()


STALLED_HTTP_2 = stalled_http_2()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:10089", Address("127.0.0.1", 10089)),
        ("[::1]:10089", Address("::1", 10089)),
        (":10089", Address("", 10089)),
        ("localhost:0", Address("localhost", 0)),
        (" 192.0.2.9:65535 ", Address("192.0.2.9", 65535)),
    ],
)
def test_addresses(text, address):
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["", "10089", "localhost", "::1:10089", "host:", "host:http", "host:65536", "host:-1", "h:²"]
)
def test_what_is_no_address_is_refused_with_an_example(text):
    with pytest.raises(UsageError, match=r"--listen: .*(is not host:port|is not a port)"):
        parse_address(text)


def test_an_address_reads_as_it_is_written():
    assert [str(parse_address(text)) for text in ("[::1]:1", "a:2", ":3")] == ["[::1]:1", "a:2", ":3"]


def test_a_port_in_use_is_named_with_what_to_do_and_nothing_stays_open():
    (taken,) = bind([Address("127.0.0.1", 0)])
    port = taken.getsockname()[1]
    with taken, pytest.raises(ListenError) as caught:
        bind([Address("127.0.0.1", 0), Address("127.0.0.1", port)])
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in str(caught.value)
    assert "--listen" in caught.value.hint


def test_a_port_can_be_taken_again_at_once():
    (first,) = bind([Address("127.0.0.1", 0)])
    port = first.getsockname()[1]
    with first, socket.create_connection(("127.0.0.1", port)) as client:
        connection, _ = first.accept()
        connection.close()
        client.recv(1)
    (again,) = bind([Address("127.0.0.1", port)])
    again.close()


@pytest.mark.parametrize(
    ("host", "reason"),
    [
        ("192.0.2.1", "Cannot assign"),
        ("no-such-host.invalid", "cannot listen on no-such-host"),
        ("a" * 64, "not a host name"),
    ],
)
def test_an_address_of_somebody_else_is_refused(host, reason):
    with pytest.raises(ListenError, match=reason):
        bind([Address(host, 0)])


def test_an_empty_host_is_every_address_and_its_url_is_one_that_works():
    (listener,) = bind([Address("", 0)])
    with listener:
        port = listener.getsockname()[1]
        assert url(listener) == f"http://localhost:{port}/"
        with socket.create_connection(("127.0.0.1", port), timeout=60):
            pass


def test_the_url_of_an_address():
    (listener,) = bind([Address("localhost", 0)])
    with listener:
        assert url(listener) == f"http://127.0.0.1:{listener.getsockname()[1]}/"


def ask(port, path="/healthz", method="GET"):
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read(), answer.headers
    finally:
        connection.close()


def test_it_answers_and_head_has_no_body(site, serving):
    served = serving(site.application())
    assert ask(served.port)[:2] == (200, b"ok")
    status, body, headers = ask(served.port, "/metrics", "HEAD")
    assert (status, body) == (200, b"")
    assert int(headers["content-length"]) > 1000
    assert "server" not in headers


@pytest.mark.parametrize(
    ("target", "status"),
    [
        ("http://vramscope/healthz", 200),
        ("HTTPS://[::1]:10089/healthz?x=http://other/", 200),
        ("http://vramscope", 200),
        ("http://vramscope/none", 404),
        ("ftp://vramscope/healthz", 404),
        ("/http://vramscope/healthz", 404),
    ],
)
def test_a_whole_address_is_a_request_for_its_path(site, serving, target, status):
    assert ask(serving(site.application()).port, target)[0] == status


def test_a_header_in_two_lines_is_one_list(site, serving):
    accept = b"Accept: text/plain;q=0.1\r\nAccept: application/openmetrics-text;version=1.0.0\r\nConnection: close\r\n"
    with socket.create_connection(("127.0.0.1", serving(site.application()).port), timeout=10) as client:
        client.sendall(HALF_A_REQUEST + accept + b"\r\n")
        answer = client.makefile("rb").read()
    assert answer.endswith(b"# EOF\n")


def test_half_open_requests_hinder_nobody_and_are_dropped(site, serving):
    served = serving(site.application(), limits=Limits(idle_seconds=2.0))
    halves = [socket.create_connection(("127.0.0.1", served.port), timeout=60) for _ in range(100)]
    for half in halves:
        half.sendall(HALF_A_REQUEST)
    seconds = []
    for _ in range(5):
        began = time.monotonic()
        assert ask(served.port, "/metrics")[0] == 200
        seconds.append(time.monotonic() - began)
    assert min(seconds) < 1, "a busy machine may be late, but not each time"
    for half in halves:
        assert half.recv(1) == b""
        half.close()


def test_half_open_requests_are_dropped_within_30_seconds_by_default():
    assert max(DEFAULT_LIMITS.idle_seconds, DEFAULT_LIMITS.read_seconds) < 30


def test_too_many_connections_are_turned_away_and_places_become_free_again(site, serving):
    served = serving(site.application(), limits=Limits(connections=3, idle_seconds=60.0))
    held = [socket.create_connection(("127.0.0.1", served.port), timeout=60) for _ in range(3)]
    for each in held:
        each.sendall(HALF_A_REQUEST)
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as fourth:
        assert fourth.recv(1) == b""
    for each in held:
        each.sendall(b"Connection: close\r\n\r\n")
        while each.recv(65536):
            pass
        each.close()
    assert ask(served.port)[0] == 200


def test_the_connections_of_all_addresses_are_counted_together(site, serving):
    limits = Limits(connections=2, idle_seconds=60.0)
    first, second = bind([Address("127.0.0.1", 0), Address("127.0.0.1", 0)], limits)
    served = serving(site.application(), listeners=[first, second], limits=limits)
    ports = [each.getsockname()[1] for each in served.listeners]
    with contextlib.ExitStack() as held:
        for port in ports:
            each = held.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
            each.sendall(A_REQUEST)
            assert each.recv(1)  # it was accepted
        third = held.enter_context(socket.create_connection(("127.0.0.1", ports[0]), timeout=10))
        assert third.recv(1) == b""


@pytest.mark.parametrize("sent", [A_REQUEST * 20_000, STALLED_HTTP_2], ids=["HTTP/1", "HTTP/2"])
def test_who_asks_and_reads_no_answer_gives_way_to_others(site, serving, sent):
    served = serving(site.application(), limits=Limits(connections=3, stale_seconds=1.0))

    def is_served() -> bool:
        try:
            return ask(served.port)[0] == 200
        except (HTTPException, OSError):
            return False

    with contextlib.ExitStack() as held:
        for _ in range(3):
            each = held.enter_context(socket.socket())
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.connect(("127.0.0.1", served.port))
            each.settimeout(0.5)
            with contextlib.suppress(TimeoutError):  # the server reads no more than it can answer
                each.sendall(sent)
        wait_for("an answer", is_served)


@pytest.mark.parametrize("sent", [b"", HALF_A_REQUEST, b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"])
def test_it_stops_at_once_whatever_clients_do(site, serving, sent):
    served = serving(site.application(), limits=Limits(idle_seconds=60.0, read_seconds=60))
    with socket.create_connection(("127.0.0.1", served.port), timeout=60) as client:
        client.sendall(sent)
        ask(served.port)
        began = time.monotonic()
        served.stop()
        assert time.monotonic() - began < 30, "it does not wait for them; 0.8 s where the machine is not busy"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", served.port), timeout=60)


def test_who_comes_before_the_server_runs_waits_in_the_queue(site, serving):
    listeners = bind([Address("127.0.0.1", 0)])
    with socket.create_connection(listeners[0].getsockname(), timeout=60) as early:
        early.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        serving(site.application(), listeners=listeners)
        assert early.recv(15) == b"HTTP/1.1 200 \r\n"


def test_it_logs_no_requests(site, serving, caplog):
    with caplog.at_level(logging.DEBUG):
        ask(serving(site.application()).port)
    assert not [record for record in caplog.records if "healthz" in record.getMessage()]

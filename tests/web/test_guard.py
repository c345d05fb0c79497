"""TLS, client certificates and passwords at a real server, and a configuration that changes under it."""

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import bcrypt
import httpx
import pytest
from tests.certificates import Certificates, Pair
from tests.daemon import wait_for

from vramscope.events import WebConfigRead
from vramscope.web.guard import Guard
from vramscope.web.server import Limits

TLS = """
tls_server_config:
  cert_file: server.pem
  key_file: server.key
  client_auth_type: RequireAndVerifyClientCert
  client_ca_file: ca.pem
"""


class Site:
    """A guarded site, and how clients with these certificates and this password fare."""

    def __init__(self, serving: Callable, site, directory: Path, text: str, idle_seconds: float) -> None:
        self.directory = directory
        self.path = directory / "web.yml"
        self.path.write_text(text)
        self.guard = Guard(self.path)
        self.served = serving(
            site.application(self.guard), context=self.guard.context(), limits=Limits(idle_seconds=idle_seconds)
        )
        self.read: list[str] = []
        self._keeping = None

    def keep(self) -> None:
        """Follow the files, in the server's loop."""

        def note(event: WebConfigRead) -> None:
            self.read.append(event.problem)

        self._keeping = asyncio.run_coroutine_threadsafe(self.guard.keep(note), self.served._loop)
        wait_for("the first reading", lambda: self.read)

    def close(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()

    def get(
        self, *, client: Pair | None = None, auth: tuple[str, str] | None = None, http2: bool = False, tls: str = ""
    ) -> httpx.Response:
        context = ssl.create_default_context(cafile=str(self.directory / "ca.pem"))
        if tls:
            context.maximum_version = ssl.TLSVersion[tls]
        if client is not None:
            context.load_cert_chain(client.certificate, client.key)
        with httpx.Client(verify=context, auth=auth, http2=http2, timeout=60, trust_env=False) as browser:
            return browser.get(f"https://127.0.0.1:{self.served.port}/metrics")


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    made = Certificates(tmp_path)
    made.server()
    return made


@pytest.fixture
def guarded(serving, site, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    made: list[Site] = []

    def make(text: str, idle_seconds: float = 60.0) -> Site:
        made.append(Site(serving, site, tmp_path, text, idle_seconds))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_a_client_with_a_good_certificate_is_served_over_http_1_and_2(guarded, certificates):
    site, client = guarded(TLS), certificates.issue("client", "prometheus")
    answer = site.get(client=client)
    assert (answer.status_code, answer.http_version) == (200, "HTTP/1.1")
    assert site.get(client=client, http2=True).http_version == "HTTP/2"


@pytest.mark.parametrize("tls", ["TLSv1_2", "TLSv1_3"])
@pytest.mark.parametrize("kind", ["none", "expired", "foreign"])
def test_a_client_without_a_good_certificate_is_refused_and_the_log_says_why(  # noqa: PLR0913, PLR0917 - fixtures
    guarded, certificates, kind, tls, tmp_path, caplog
):
    (tmp_path / "foreign").mkdir()
    client = {
        "none": lambda: None,
        "expired": lambda: certificates.issue("client", "prometheus", is_expired=True),
        "foreign": lambda: Certificates(tmp_path / "foreign").issue("client", "prometheus"),
    }[kind]()
    site = guarded(TLS)
    with pytest.raises((httpx.TransportError, ssl.SSLError)):
        site.get(client=client, tls=tls)
    said = wait_for("a line in the log", lambda: [each.reason for each in caplog.records if hasattr(each, "reason")])
    expected = {"none": "did not return a certificate", "expired": "certificate has expired", "foreign": "issuer"}
    assert expected[kind] in said[0]
    assert site.get(client=certificates.issue("good", "prometheus")).status_code == 200


def test_plain_http_to_tls_and_half_a_handshake_hinder_nobody(guarded, certificates):
    site, client = guarded(TLS, idle_seconds=3.0), certificates.issue("client", "prometheus")
    halves = [socket.create_connection(("127.0.0.1", site.served.port), timeout=60) for _ in range(50)]
    halves[0].sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    halves[1].sendall(b"\x16\x03\x01\x02\x00\x01")
    assert site.get(client=client).status_code == 200
    for half in halves:
        while half.recv(1000):  # an alert, perhaps, and then the end
            pass
        half.close()


@pytest.mark.usefixtures("certificates")
def test_passwords_are_asked_for_beneath_tls(guarded):
    hashed = bcrypt.hashpw(b"sesame", bcrypt.gensalt(4)).decode()
    tls = "tls_server_config: {cert_file: server.pem, key_file: server.key}\n"
    site = guarded(f"{tls}basic_auth_users: {{alice: {hashed}}}\n")
    assert site.get(auth=("alice", "sesame")).status_code == 200
    refused = site.get(auth=("alice", "wrong"))
    assert refused.status_code == 401
    assert refused.headers["content-security-policy"]
    assert "vramscope_" not in refused.text


def test_a_new_certificate_is_used_from_the_next_connection_on(guarded, certificates, tmp_path):
    site = guarded("tls_server_config: {cert_file: server.pem, key_file: server.key}\n")
    site.keep()

    def serial() -> str:
        return ssl.get_server_certificate(("127.0.0.1", site.served.port), timeout=60)

    before = serial()
    new = certificates.issue("new", "127.0.0.1")
    new.key.replace(tmp_path / "server.key")  # between the two the pair does not fit
    new.certificate.replace(tmp_path / "server.pem")
    wait_for("the new certificate", lambda: serial() != before)
    assert site.get().status_code == 200


@pytest.mark.usefixtures("certificates")
def test_a_bad_change_keeps_what_is_in_force_and_a_good_one_is_taken_up_again(guarded):
    hashed = {word: bcrypt.hashpw(word.encode(), bcrypt.gensalt(4)).decode() for word in ("old", "new")}
    tls = "tls_server_config: {cert_file: server.pem, key_file: server.key}\n"
    site = guarded(f"{tls}basic_auth_users: {{alice: {hashed['old']}}}\n")
    site.keep()
    site.path.write_text(f"{tls}basic_auth_user: {{}}\n")
    wait_for("the complaint", lambda: "unknown key" in site.read[-1])
    assert site.get(auth=("alice", "old")).status_code == 200
    site.path.write_text(f"basic_auth_users: {{alice: {hashed['new']}}}\n")
    wait_for("the complaint", lambda: "TLS cannot be switched off" in site.read[-1])
    assert site.get(auth=("alice", "old")).status_code == 200
    site.path.write_text(f"{tls}basic_auth_users:\n")  # the half that a full disk took
    wait_for("the complaint", lambda: "passwords cannot be switched off" in site.read[-1])
    assert site.get().status_code == 401
    site.path.write_text(f"{tls}basic_auth_users: {{alice: {hashed['new']}}}\n")
    wait_for("the good one", lambda: site.read[-1] == "")
    assert site.get(auth=("alice", "new")).status_code == 200
    assert site.get(auth=("alice", "old")).status_code == 401


@pytest.mark.parametrize("name", ["web.yml", "server.key"])
@pytest.mark.usefixtures("certificates")
def test_a_pipe_in_the_place_of_a_file_is_told_and_the_next_file_is_taken_up(guarded, tmp_path, name):
    site = guarded("tls_server_config: {cert_file: server.pem, key_file: server.key}\n")
    site.keep()
    file, aside = tmp_path / name, tmp_path / "aside"
    file.rename(aside)
    os.mkfifo(file)
    wait_for("the complaint", lambda: "no file" in site.read[-1])
    assert site.get().status_code == 200
    aside.replace(file)
    wait_for("the good one", lambda: site.read[-1] == "")


def test_a_configuration_from_a_pipe_holds_for_the_whole_run(tmp_path):
    """Read again, the pipe of a shell's `<(…)` is empty: nobody would need a password."""
    hashed = bcrypt.hashpw(b"sesame", bcrypt.gensalt(4)).decode()
    path, told = tmp_path / "pipe", []
    os.mkfifo(path)
    writer = Thread(target=path.write_text, args=(f"basic_auth_users: {{alice: {hashed}}}\n",))
    writer.start()
    guard = Guard(path)
    writer.join()

    async def follow() -> None:
        keeping = asyncio.create_task(guard.keep(told.append))
        async with asyncio.timeout(60):
            while not told:  # noqa: ASYNC110 - it comes by a callback
                await asyncio.sleep(0.05)
        keeping.cancel()

    asyncio.run(follow())
    assert told[0].problem == ""
    assert guard.users() == {"alice": hashed}

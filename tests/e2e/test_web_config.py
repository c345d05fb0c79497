"""A real Prometheus that scrapes a daemon over TLS with a client certificate and a password, and some that may not."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import bcrypt
import pytest
from tests.certificates import Certificates, Pair
from tests.daemon import wait_for
from tests.prometheus import Prometheus, free_port

PASSWORD = "correct horse"  # noqa: S105 - of this test
PLAN = "version: 1\nmodels: {}\nrepeat: forever\nsteps: [{wait: 1s}]\n"


@pytest.fixture
def scraping(tmp_path: Path) -> Iterator[Callable[..., Prometheus]]:
    if shutil.which("prometheus") is None:
        pytest.skip("there is no prometheus here")
    running: list[Prometheus] = []

    def begin(target: str, access: dict[str, Any]) -> Prometheus:
        directory = tmp_path / f"prometheus{len(running)}"
        directory.mkdir()
        running.append(Prometheus(directory, target, free_port(), access=access))
        return running[-1]

    yield begin
    for each in running:
        each.stop()


@pytest.mark.timeout(240)
def test_prometheus_scrapes_over_tls_with_its_certificate_and_password_and_nobody_else_does(
    tmp_path: Path, start: Callable, write_plan: Callable[[str], Path], scraping: Callable[..., Prometheus]
) -> None:
    certificates = Certificates(tmp_path)
    certificates.server()
    good = certificates.issue("good", "prometheus")
    expired = certificates.issue("expired", "prometheus", is_expired=True)
    web = tmp_path / "web.yml"
    web.write_text(
        "tls_server_config:\n  cert_file: server.pem\n  key_file: server.key\n  client_ca_file: ca.pem\n"
        "  client_auth_type: RequireAndVerifyClientCert\n"
        f"basic_auth_users:\n  scraper: {bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(10)).decode()}\n"
    )
    # The page that tests read is behind the same door, so what the daemon prints is all there is to see of it.
    daemon = start(write_plan(PLAN), "--device", "simulated", "--web.config.file", web)
    assert daemon.url.startswith("https://127.0.0.1:")
    target = daemon.url.removeprefix("https://")

    def access(client: Pair | None, password: str) -> dict[str, Any]:
        tls: dict[str, str] = {"ca_file": str(certificates.authority)}
        if client is not None:
            tls |= {"cert_file": str(client.certificate), "key_file": str(client.key)}
        return {
            "scheme": "https",
            "tls_config": tls,
            "basic_auth": {"username": "scraper", "password": password},
        }

    welcome = scraping(target, access(good, PASSWORD))
    wait_for("a scrape", lambda: welcome.value("vramscope_build_info") == 1)
    for refused in (access(good, "hunter2"), access(None, PASSWORD), access(expired, PASSWORD)):
        turned_away = scraping(target, refused)

        def last_error(prometheus: Prometheus = turned_away) -> str:
            return "".join(each["lastError"] for each in prometheus.ask("/api/v1/targets")["activeTargets"])

        wait_for("a refused scrape", last_error)
        wait_for("no page", lambda prometheus=turned_away: prometheus.value("up") == 0)
    wait_for("a page", lambda: welcome.value("up") == 1)
    for reason in ("wrong password for scraper", "did not return a certificate", "certificate has expired"):
        wait_for("the log", lambda reason=reason: reason in daemon.output)
    assert "hunter2" not in daemon.output
    assert PASSWORD not in daemon.output
    assert "Traceback" not in daemon.output
    assert daemon.stop() == 0


def test_a_web_configuration_that_is_wrong_ends_the_start_with_one_line(
    tmp_path: Path, write_plan: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    from vramscope.cli import main

    web = tmp_path / "web.yml"
    web.write_text("basic_auth_user: {}\n")
    assert main(["run", str(write_plan(PLAN)), "--web-config", str(web)]) == 1
    assert capsys.readouterr().err.startswith(f'vramscope: {web}:1:1: unknown key "basic_auth_user"')

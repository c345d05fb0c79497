import ssl
from pathlib import Path

import pytest
from tests.certificates import Certificates

from vramscope.web.web_config import WebConfigError, load_web_config

HASH = "$2y$04$" + "a" * 53  # nothing is checked against it
TLS = "tls_server_config: {cert_file: server.pem, key_file: server.key"


@pytest.fixture(autouse=True)
def _certificates(tmp_path: Path) -> None:
    Certificates(tmp_path).server()


def write(directory: Path, text: str) -> Path:
    path = directory / "web.yml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("text", ["", "# nothing\n\n  # yet\n", "tls_server_config:\nbasic_auth_users:\n", "{}"])
def test_a_file_that_asks_for_nothing_is_plain_http_for_everybody(tmp_path, text):
    config = load_web_config(write(tmp_path, text))
    assert (config.context, dict(config.users)) == (None, {})


def test_everything_that_is_supported_is_read_and_paths_start_at_the_file(tmp_path):
    text = f"""{TLS}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.pem, min_version: TLS13}}
http_server_config:
  http2: false
  headers: {{Strict-Transport-Security: max-age=31536000}}
basic_auth_users: {{alice: {HASH}, bob: {HASH}}}
"""
    config = load_web_config(write(tmp_path, text))
    assert config.context is not None
    assert config.context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert config.context.verify_mode is ssl.CERT_REQUIRED
    assert set(config.users) == {"alice", "bob"}
    assert config.headers["Strict-Transport-Security"] == "max-age=31536000"
    assert [file.name for file in config.files] == ["web.yml", "server.pem", "server.key", "ca.pem"]
    assert HASH not in repr(config)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tls_server_confg: {}", ':1:1: unknown key "tls_server_confg" (did you mean "tls_server_config"?)'),
        (f"{TLS}, cipher_suites: [TLS_AES_128_GCM_SHA256]}}", 'tls_server_config: unknown key "cipher_suites"'),
        ("tls_server_config: {cert_file: server.pem}", ': tls_server_config: missing key "key_file"'),
        (f"{TLS}, min_version: TLS10}}", 'expected one of TLS12, TLS13; got "TLS10"'),
        (f"{TLS}, min_version: TLS13, max_version: TLS12}}", "min_version TLS13 is above max_version TLS12"),
        (f"{TLS}, client_auth_type: RequireAnyClientCert}}", "expected one of NoClientCert, VerifyClientCertIfGiven, "),
        (f"{TLS}, client_auth_type: RequireAndVerifyClientCert}}", 'needs "client_ca_file"'),
        (f"{TLS}, client_ca_file: ca.pem}}", "client_ca_file asks nobody"),
        ("tls_server_config: {cert_file: gone.pem, key_file: server.key}", "gone.pem cannot be read: No such file"),
        ("tls_server_config: {cert_file: ca.pem, key_file: server.key}", "not usable together: key values mismatch"),
        ("tls_server_config: {cert_file: web.yml, key_file: server.key}", "not usable together: not PEM"),
        ("http_server_config: {http2: 1}", "expected true or false, got the number 1"),
        ("http_server_config: {headers: {X-Other: a}}", "expected one of Content-Security-Policy"),
        ('http_server_config: {headers: {X-Frame-Options: "a\\nb"}}', "expected text of one line"),
        ("basic_auth_users: [alice]", "expected a mapping of users to bcrypt hashes"),
        (f"basic_auth_users: {{'a:b': {HASH}}}", "without a colon"),
        (f"basic_auth_users: {{alice: {HASH.replace('04', '31')}}}", "a cost from 4 to 15"),
        ("- a", "expected a mapping with tls_server_config or basic_auth_users"),
        ("a: [", "not valid YAML"),
        (f"basic_auth_users: {{a: {HASH}, a: {HASH}}}", 'the key "a" is given twice'),
    ],
)
def test_what_is_wrong_is_one_clear_error(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(WebConfigError) as caught:
        load_web_config(path)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value).splitlines()) == 1


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(WebConfigError, match=r"gone\.yml: cannot be read: No such file"):
        load_web_config(tmp_path / "gone.yml")


@pytest.mark.parametrize("text", ["basic_auth_users: {alice: hunter2}", "basic_auth_users: [hunter2]", "hunter2"])
def test_a_password_in_the_wrong_place_is_not_repeated(tmp_path, text):
    with pytest.raises(WebConfigError) as caught:
        load_web_config(write(tmp_path, text))
    assert "hunter2" not in str(caught.value)


def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_its_password(tmp_path):
    from cryptography.hazmat.primitives import serialization

    key = serialization.load_pem_private_key((tmp_path / "server.key").read_bytes(), None)
    (tmp_path / "server.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"hunter2"),
        )
    )
    with pytest.raises(WebConfigError, match="the key is encrypted"):
        load_web_config(write(tmp_path, f"{TLS}}}"))

"""Certificates for a test: an authority, a server of the loopback, and clients, good and expired."""

import datetime as dt
from dataclasses import dataclass
from pathlib import Path

import trustme


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, as PEM files."""

    certificate: Path
    key: Path


class Certificates:
    """One authority and what it signs, written below `directory`."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._signer = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.authority = directory / "ca.pem"
        self._signer.cert_pem.write_to_path(str(self.authority))

    def issue(self, name: str, *identities: str, is_expired: bool = False) -> Pair:
        expiry = dt.datetime(2001, 1, 1, tzinfo=dt.UTC) if is_expired else None
        signed = self._signer.issue_cert(*identities, not_after=expiry)
        pair = Pair(self._directory / f"{name}.pem", self._directory / f"{name}.key")
        signed.cert_chain_pems[0].write_to_path(str(pair.certificate))
        signed.private_key_pem.write_to_path(str(pair.key))
        return pair

    def server(self) -> Pair:
        return self.issue("server", "127.0.0.1", "localhost", "::1")

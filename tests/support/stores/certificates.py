"""A private CA's certificates in files, made once for all tests of a process."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trioha.config.private_ca import Pem, PrivateCa
from trioha.config.tls_files import ClientTls
from trioha.remoting.tls_session import TlsSession

PASSWORD = "open sesame"


class Certificates:
    """Files ``NAME.pem`` and ``NAME.key`` of certificates, good and bad."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        now = datetime.now(UTC)
        here = ["127.0.0.1", "localhost"]
        own, foreign = PrivateCa.make("test CA", now), PrivateCa.make("foreign CA", now)
        self._put("ca", own.pem)
        self._put("foreign-ca", foreign.pem)
        self._put("node", own.issue("node", here, now))
        self._put("next", own.issue("next node", here, now, days=3))
        self._put("expired", own.issue("expired", here, now, days=-1))
        self._put("elsewhere", own.issue("elsewhere", ["broker.example"], now))
        self._put("locked", own.issue("locked", here, now, password=PASSWORD))
        self._put("foreign", foreign.issue("foreign", here, now))
        self._put("operator", own.issue("operator", [], now))

    def _put(self, name: str, pem: Pem) -> None:
        (self.directory / f"{name}.pem").write_bytes(pem.certificate)
        (self.directory / f"{name}.key").write_bytes(pem.key)

    def cert(self, name: str) -> str:
        return str(self.directory / f"{name}.pem")

    def key(self, name: str) -> str:
        return str(self.directory / f"{name}.key")

    def settings(self, name: str = "node", mode: str = "enforcing", **more: Any) -> dict[str, Any]:
        """Fields of a node's configuration."""
        return {
            "tls_server_mode": mode,
            "tls_server_cert_path": self.cert(name),
            "tls_server_key_path": self.key(name),
            "tls_server_trust_cert_path": self.cert("ca"),
        } | more

    def keys(self, mode: str, **more: str) -> dict[str, object]:
        """The same settings by their keys, for a node in a process of its own."""
        return {
            "tls.server.mode": mode,
            "tls.server.certPath": self.cert("node"),
            "tls.server.keyPath": self.key("node"),
            "tls.server.trustCertPath": self.cert("ca"),
            **more,
        }

    def client(self, name: str = "", ca: str = "ca") -> ClientTls:
        """A client that trusts a CA, with a certificate of its own if it has a name."""
        if not name:
            return ClientTls(trust=self.cert(ca))
        return ClientTls(trust=self.cert(ca), cert=self.cert(name), key=self.key(name))

    def environment(self, name: str = "") -> Mapping[str, str]:
        """Variables of a client or a tool."""
        variables = {
            "TRIOHA_TLS_ENABLE": "true",
            "TRIOHA_TLS_CLIENT_TRUST_CERT_PATH": self.cert("ca"),
        }
        if name:
            variables["TRIOHA_TLS_CLIENT_CERT_PATH"] = self.cert(name)
            variables["TRIOHA_TLS_CLIENT_KEY_PATH"] = self.key(name)
        return variables


@functools.cache
def certificates() -> Certificates:
    """Return the certificates; no test changes them."""
    directory = tempfile.TemporaryDirectory(prefix="trioha-certificates-")
    made = Certificates(Path(directory.name))
    made.kept = directory  # type: ignore[attr-defined]  # removed when the process ends
    return made


def shake(server: TlsSession, client: TlsSession, step: int = 1 << 20) -> None:
    """Do the handshake; bytes arrive `step` at a time."""
    done = False
    while not done:
        done = client.handshake()
        carry(client, server, step)
        done = server.handshake() and done
        carry(server, client, step)


def carry(source: TlsSession, target: TlsSession, step: int) -> None:
    data = source.take_ciphertext()
    for start in range(0, len(data), step):
        target.feed(data[start : start + step])

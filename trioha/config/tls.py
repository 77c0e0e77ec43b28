"""Settings of TLS that brokers and name servers share, and the rules between them.

Keys are RocketMQ 4.9's (its class TlsSystemConfig), where they are Java system properties. There a
node without a certificate makes one for tests and accepts both kinds of connection; no client could
know whom it talks to. So TLS is off here until `tls.server.certPath` names a certificate.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs

MODES = ("disabled", "permissive", "enforcing")
CLIENT_AUTH = ("none", "optional", "require")


def _tls(default: Any, doc: str, key: str, *, ours: bool = False) -> Any:
    return attrs.field(default=default, metadata={"doc": doc, "key": key, "ours": ours})


@attrs.frozen(kw_only=True)
class TlsSettings:
    """TLS of one node: as it is asked (`server`), and as it asks others (`client`)."""

    tls_server_mode: str = _tls(
        "",
        "disabled, permissive (both kinds of connection) or enforcing (TLS only); "
        "empty: permissive with a certificate, else disabled",
        "tls.server.mode",
    )
    tls_server_cert_path: str = _tls(
        "", "file of the node's certificate chain, PEM", "tls.server.certPath"
    )
    tls_server_key_path: str = _tls("", "file of its private key, PEM", "tls.server.keyPath")
    tls_server_key_password: str = _tls("", "password of that key", "tls.server.keyPassword")
    tls_server_need_client_auth: str = _tls(
        "none",
        "certificates of clients and nodes: none, optional or require",
        "tls.server.need.client.auth",
    )
    tls_server_trust_cert_path: str = _tls(
        "", "file of the CAs that sign certificates of clients, PEM", "tls.server.trustCertPath"
    )
    tls_enable: bool = _tls(
        False,
        "TLS to name servers and other nodes; always with tls.server.mode=enforcing",
        "tls.enable",
    )
    tls_client_cert_path: str = _tls(
        "", "certificate shown to other nodes; empty: tls.server.certPath", "tls.client.certPath"
    )
    tls_client_key_path: str = _tls(
        "", "its private key; empty: tls.server.keyPath", "tls.client.keyPath"
    )
    tls_client_key_password: str = _tls("", "password of that key", "tls.client.keyPassword")
    tls_client_trust_cert_path: str = _tls(
        "",
        "file of the CAs that sign certificates of other nodes; empty: tls.server.trustCertPath, "
        "else those of the system",
        "tls.client.trustCertPath",
    )
    tls_client_auth_server: bool = _tls(
        True, "check certificates of other nodes (RocketMQ: false)", "tls.client.authServer"
    )
    tls_client_check_host: bool = _tls(
        True,
        "the certificate of another node must name the host that was asked for",
        "tls.client.checkHost",
        ours=True,
    )
    tls_ha_enable: bool = _tls(
        True,
        "TLS covers a slave's link to its master too; false for a RocketMQ master, whose HA port "
        "knows no TLS",
        "tls.ha.enable",
        ours=True,
    )
    tls_config_file: str = _tls(
        "", "file of tls.* settings, .properties; they win over all others", "tls.config.file"
    )

    @property
    def tls_mode(self) -> str:
        """One of `MODES`."""
        return self.tls_server_mode or ("permissive" if self.tls_server_cert_path else "disabled")

    @property
    def dials_tls(self) -> bool:
        """Whether this node connects to others over TLS."""
        return self.tls_enable or self.tls_mode == "enforcing"


TLS_PATH_KEYS = frozenset(
    f"tls.{side}.{name}"
    for side in ("server", "client")
    for name in ("certPath", "keyPath", "trustCertPath")
) | {"tls.config.file"}


def check_tls(config: TlsSettings, refuse: Callable[[str, str], None]) -> None:
    """Rules between these settings. `refuse(key, reason)` raises ConfigError."""
    if config.tls_server_mode not in ("", *MODES):
        refuse("tls.server.mode", "must be " + " or ".join(MODES))
    if config.tls_server_need_client_auth not in CLIENT_AUTH:
        refuse("tls.server.need.client.auth", "must be " + " or ".join(CLIENT_AUTH))
    if config.tls_mode != "disabled" and not config.tls_server_cert_path:
        refuse(
            "tls.server.mode",
            f"{config.tls_mode} needs a certificate (tls.server.certPath); there is no test "
            "certificate as in RocketMQ, `trioha security init` makes real ones",
        )
    for side, cert, key in (
        ("server", config.tls_server_cert_path, config.tls_server_key_path),
        ("client", config.tls_client_cert_path, config.tls_client_key_path),
    ):
        if bool(cert) != bool(key):
            given, missing = ("certPath", "keyPath") if cert else ("keyPath", "certPath")
            refuse(f"tls.{side}.{given}", f"tls.{side}.{missing} is missing beside it")
    if config.tls_server_need_client_auth != "none" and not config.tls_server_trust_cert_path:
        refuse(
            "tls.server.need.client.auth",
            "name the CAs that sign certificates of clients (tls.server.trustCertPath)",
        )

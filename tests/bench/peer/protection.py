"""Protection that both makes require: none, signed requests, or TLS; the same on both sides.

With TLS the ports accept plain connections as well (`tls.server.mode=permissive`): those of the
harness. The load client's connections are TLS, to the name server too. Java's name server makes a
certificate of its own, which the stock client accepts.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path

from support.stores.certificates import certificates

from trioha.security.signature import Credentials

_OPERATOR = Credentials("operator-1", "operator-secret")
APPLICATION = Credentials("application", "application-secret")
_ACCOUNTS = f"""\
accounts:
- accessKey: {_OPERATOR.access_key}
  secretKey: {_OPERATOR.secret_key}
  admin: true
- accessKey: {APPLICATION.access_key}
  secretKey: {APPLICATION.secret_key}
  defaultTopicPerm: PUB|SUB
  defaultGroupPerm: SUB
"""


class Protection(enum.Enum):
    """Protection that a broker requires of its clients."""

    NONE = "none"
    ACL = "acl"
    TLS = "tls"

    @property
    def operator(self) -> Credentials | None:
        """Creates topics."""
        return _OPERATOR if self is Protection.ACL else None

    def settings(self, accounts: Path, *, java: bool) -> dict[str, object]:
        """Return what the broker's configuration needs; write its accounts."""
        if self is Protection.ACL:
            accounts.parent.mkdir(parents=True, exist_ok=True)
            accounts.write_text(_ACCOUNTS)
            # Java's broker reads no other place than conf below its home.
            return {"aclEnable": True} if java else {"aclEnable": True, "aclFile": accounts}
        return {} if java else self.node_settings()

    def node_settings(self) -> dict[str, object]:
        """Return what a trioha node's configuration needs for TLS."""
        return certificates().keys("permissive") if self is Protection.TLS else {}

    def java_properties(self) -> Mapping[str, str]:
        """Return the system properties of Java's broker."""
        if self is not Protection.TLS:
            return {}
        return {
            "tls.test.mode.enable": "false",
            "tls.server.mode": "permissive",
            "tls.server.certPath": certificates().cert("node"),
            "tls.server.keyPath": certificates().key("node"),
        }

    def client_properties(self) -> Mapping[str, str]:
        """Return the system properties of the Java load client."""
        if self is Protection.ACL:
            return {
                "bench.accessKey": APPLICATION.access_key,
                "bench.secretKey": APPLICATION.secret_key,
            }
        return {"tls.enable": "true"} if self is Protection.TLS else {}

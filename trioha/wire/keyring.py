"""The shared secrets of a cluster, and what is proven with them.

Theory of operation. Nodes prove to each other that they know the cluster's secret by an HMAC-SHA256
over a challenge of the other side. A keyring may hold several secrets while an operator changes
them: the first one signs, and all of them are accepted. So every node is first given the new secret
beside the old one, then the new one before the old one, then the new one alone.
"""

from __future__ import annotations

import hmac

MAC_BYTES = 32


class Keyring:
    """Secrets, the one that signs first; without any, nothing is asked of anybody."""

    def __init__(self, *secrets: str) -> None:
        self._secrets = tuple(secret for secret in secrets if secret)

    @property
    def secrets(self) -> tuple[str, ...]:
        return self._secrets

    def __bool__(self) -> bool:
        return bool(self.secrets)

    def mac(self, data: bytes) -> bytes:
        """Sign `data` with the first secret; b"" without one."""
        secrets = self.secrets
        return hmac.digest(secrets[0].encode(), data, "sha256") if secrets else b""

    def is_mac(self, data: bytes, mac: bytes) -> bool:
        """Return whether `mac` is of one of the secrets; takes the same time whatever it is."""
        found = False
        for secret in self.secrets:
            found |= hmac.compare_digest(hmac.digest(secret.encode(), data, "sha256"), mac)
        return found

    def __repr__(self) -> str:
        return f"<Keyring of {len(self.secrets)}>"


def keyring_of(secret: str | Keyring) -> Keyring:
    """Return a keyring of one secret, of none if it is ""; a keyring as it is."""
    return secret if isinstance(secret, Keyring) else Keyring(secret)

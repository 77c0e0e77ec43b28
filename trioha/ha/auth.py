"""Admits slaves: from trusted networks at once, from other networks after a challenge.

RocketMQ's HA port hands the whole log to any peer. With `haSecret` set, a trioha master speaks
first: 32 bytes, a magic and a nonce. The slave answers with 32 bytes, an HMAC-SHA256 over the nonce
under the shared secret, and only then reports as ever. No peer gets a byte of the log before that.
Peers inside `haAllowedPeers` are spared the challenge, so that Java slaves, which know nothing of
it, can follow from addresses that the operator names; without a secret that list is the whole rule.
With neither, all is classic.

The secret proves the slave to the master, not the reverse, and nothing is encrypted: against a
listener or a forger on the path, the link belongs in a VPN.

A magic read as the first half of a frame's phy_offset would lie beyond 6 * 10^18, where no log
ends: so a slave without a secret can tell a challenge from a frame, and says what it lacks.
"""

from __future__ import annotations

from enum import Enum
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

import attrs

from trioha.errors import ConfigError
from trioha.wire.keyring import Keyring, keyring_of

MAGIC = b"THA\x01"
NONCE_BYTES = 28
CHALLENGE_BYTES = len(MAGIC) + NONCE_BYTES
ANSWER_BYTES = 32
_SLAVE_PURPOSE = b"trioha-ha-slave"


class Admission(Enum):
    """Treatment of a peer that connects."""

    CLASSIC = "CLASSIC"
    CHALLENGE = "CHALLENGE"
    REFUSED = "REFUSED"


def challenge(nonce: bytes) -> bytes:
    """Return the master's first bytes on a link. `nonce` must be 28 fresh random bytes."""
    assert len(nonce) == NONCE_BYTES, f"nonce of {len(nonce)} bytes, not {NONCE_BYTES}"
    return MAGIC + nonce


def answer(secret: str | Keyring, challenge_message: bytes) -> bytes:
    """Return the answer to a challenge of a slave that knows the secret."""
    return keyring_of(secret).mac(_signed(challenge_message))


def is_answer(secret: str | Keyring, challenge_message: bytes, data: bytes) -> bool:
    """Did the peer know the secret? Takes the same time whatever the answer."""
    return keyring_of(secret).is_mac(_signed(challenge_message), data)


def _signed(challenge_message: bytes) -> bytes:
    return challenge_message[len(MAGIC) :] + _SLAVE_PURPOSE


@attrs.frozen
class AccessPolicy:
    """`haSecret` and `haAllowedPeers` as one decision."""

    secret: Keyring
    networks: tuple[IPv4Network | IPv6Network, ...]

    @classmethod
    def of(cls, secret: str | Keyring, allowed_peers: str) -> AccessPolicy:
        """Errors: ConfigError when an entry is no network."""
        networks = []
        for entry in allowed_peers.replace(",", ";").split(";"):
            if not entry.strip():
                continue
            try:
                networks.append(ip_network(entry.strip(), strict=False))
            except ValueError as error:
                raise ConfigError(
                    f"haAllowedPeers: {entry.strip()!r} is no network ({error}); "
                    "write CIDR like 10.1.0.0/16;192.168.7.9"
                ) from error
        return cls(keyring_of(secret), tuple(networks))

    def admission(self, peer: str) -> Admission:
        """Return the treatment of `peer`, an address as host:port."""
        if not self.secret and not self.networks:
            return Admission.CLASSIC
        if self._is_allowed(peer):
            return Admission.CLASSIC
        return Admission.CHALLENGE if self.secret else Admission.REFUSED

    def _is_allowed(self, peer: str) -> bool:
        host = peer.rpartition(":")[0].strip("[]").partition("%")[0]
        try:
            address = ip_address(host)
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self.networks)

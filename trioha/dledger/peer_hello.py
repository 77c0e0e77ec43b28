"""The greeting of two members before the first Raft message of a connection, and its proofs.

    caller                                         callee
    HELLO  cluster, group, stamp, source,
           target, address, nonce           ──►    checks cluster, group, peer list and names
                                            ◄──    nonce, proof that it knows the secret
    PROOF  proof                            ──►
                                            ◄──    its PeerNote
    NOTE   every second                     ──►
                                            ◄──    its PeerNote

Theory of operation. Both ends do what `ha/auth.py` does: each end answers the other's nonce with an
HMAC-SHA256 under `dLegerSecret`, over both nonces and both names, so that no answer fits another
connection or direction. Without a secret on either end the proofs are empty. Before the proofs the
callee decodes no Raft message, and afterwards only messages of the member that greeted it.

A source that our own configuration does not know is let in too if it can prove that it knows the
secret: the leader may have been added while we were away (Raft thesis 4.1).

Nothing is encrypted and no message is signed. Where an attacker can change packets, use a VPN.
"""

from __future__ import annotations

from typing import Any

import attrs
import msgpack

from trioha.dledger.bootstrap import NONCE_BYTES
from trioha.dledger.membership import MEMBER_ID_CHARS_MAX
from trioha.dledger.message_codec import GroupDoor
from trioha.errors import RemoteProtocolError
from trioha.wire.keyring import Keyring, keyring_of
from trioha.wire.remoting_command import Buffer

HELLO, PROOF, NOTE = "hello", "proof", "note"
PROOF_BYTES = 32
BODY_BYTES_MAX = 16_384
"""Limit of one greeting; a note names at most fifteen members twice."""
_TEXT_CHARS_MAX = 255
_CONNECTS, _ANSWERS = b"trioha-raft-connects", b"trioha-raft-answers"


@attrs.frozen
class PeerHello:
    """First frame of a connection: the caller's identity and the member that it means."""

    cluster: str
    group: str
    stamp: int
    source: str
    target: str
    address: str
    """Address, host:port, at which the source itself listens."""
    nonce: bytes

    @classmethod
    def of(cls, door: GroupDoor, target: str, address: str, nonce: bytes) -> PeerHello:
        return cls(door.cluster, door.group, door.stamp, door.member_id, target, address, nonce)

    def plain(self) -> list[Any]:
        return [HELLO, *attrs.astuple(self)]


def pack(fields: list[Any]) -> bytes:
    packed: bytes = msgpack.packb(fields)
    return packed


def unpack(data: Buffer) -> list[Any]:
    """Return the fields of a greeting, the kind first. Errors: RemoteProtocolError."""
    if len(data) > BODY_BYTES_MAX:
        raise RemoteProtocolError(f"a greeting of {len(data)} bytes")
    try:
        fields = msgpack.unpackb(data)
    except (ValueError, TypeError, msgpack.UnpackException, RecursionError):
        fields = None
    if type(fields) is not list or not fields or fields[0] not in (HELLO, PROOF, NOTE):
        raise RemoteProtocolError("a greeting that this version does not know")
    return fields


def hello_of(fields: list[Any], door: GroupDoor) -> PeerHello:
    """Return the hello of a member of this group.

    Errors: RemoteProtocolError that names the difference and its cure.
    """
    if len(fields) != 8:
        raise RemoteProtocolError("a hello that this version does not know")
    hello = PeerHello(*fields[1:])
    if type(hello.source) is not str or not 0 < len(hello.source) <= MEMBER_ID_CHARS_MAX:
        raise RemoteProtocolError(f"{str(hello.source)[:60]!r} is no member id")
    door.admit(hello.cluster, hello.group, hello.stamp, hello.source, hello.target, (hello.source,))
    if type(hello.nonce) is not bytes or len(hello.nonce) != NONCE_BYTES:
        raise RemoteProtocolError("a hello without a nonce")
    if type(hello.address) is not str or len(hello.address) > _TEXT_CHARS_MAX:
        raise RemoteProtocolError(f"{hello.source} does not tell its own address")
    return hello


def proof_of(fields: list[Any]) -> bytes:
    """Return the proof of a PROOF frame. Errors: RemoteProtocolError."""
    if len(fields) != 2 or type(fields[1]) is not bytes:
        raise RemoteProtocolError("a proof that this version does not know")
    proof: bytes = fields[1]
    return proof


@attrs.frozen
class PeerProofs:
    """Makes and checks proofs under `dLegerSecret`; without a secret all proofs are empty."""

    keyring: Keyring = attrs.field(converter=keyring_of)

    def of_caller(self, hello: PeerHello, nonce: bytes) -> bytes:
        return self.keyring.mac(_signed(hello, nonce, _CONNECTS))

    def of_callee(self, hello: PeerHello, nonce: bytes) -> bytes:
        return self.keyring.mac(_signed(hello, nonce, _ANSWERS))

    def check_caller(self, hello: PeerHello, nonce: bytes, proof: bytes) -> None:
        """Errors: RemoteProtocolError if the caller's proof is wrong."""
        if not self._fits(_signed(hello, nonce, _CONNECTS), proof):
            raise RemoteProtocolError(
                f"{hello.source} cannot prove that it knows the secret of {hello.group}; set "
                "dLegerSecret to the same on all members"
            )

    def check_callee(self, hello: PeerHello, nonce: bytes, proof: bytes) -> None:
        """Errors: RemoteProtocolError if the callee's proof is wrong."""
        if not self._fits(_signed(hello, nonce, _ANSWERS), proof):
            raise RemoteProtocolError(
                f"{hello.target} cannot prove that it knows the secret of {hello.group}; set "
                "dLegerSecret to the same on all members"
            )

    def _fits(self, signed: bytes, proof: bytes) -> bool:
        return self.keyring.is_mac(signed, proof) if self.keyring else not proof


def _signed(hello: PeerHello, nonce: bytes, purpose: bytes) -> bytes:
    # msgpack keeps the length of each part, so no two lists have the same bytes.
    return pack([purpose, nonce, *attrs.astuple(hello)])

"""A node's answer to HA_HELLO (30010): who it is, by which history, and whether logs are the same.

Every node answers, whatever its standing: a slave that asks the wrong one is told whom that
follows. A hello that knows of a newer epoch than ours fences us before it is answered.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from zlib import crc32

from trioha.config import BrokerConfig
from trioha.errors import CommandError, OffsetOutOfRange
from trioha.ha.auth import AccessPolicy, Admission
from trioha.ha.hello import (
    CHALLENGE_BYTES,
    PROOF_SPAN_BYTES,
    Extent,
    Hello,
    HelloAnswer,
    Proofs,
    Span,
)
from trioha.ha.mastership import Mastership, Standing
from trioha.remoting.channel import Channel, Instant
from trioha.services.ha_master_link import LogSource
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand

CHALLENGE_FIELD, PROOF_FIELD = "challenge", "proof"


class HaGreeting:
    """Handler of HA_HELLO.

    `on_fenced` is called in the same pass when a hello deposes us; `follows` tells the remoting
    address of the master that this node follows, "" when none.
    """

    def __init__(
        self,
        mastership: Mastership,
        store: LogSource,
        config: BrokerConfig,
        address: str,
        on_fenced: Callable[[str], None],
        follows: Callable[[], str],
    ) -> None:
        self._mastership = mastership
        self._store = store
        self._broker_name = config.broker_name
        self._address = address
        self._on_fenced = on_fenced
        self._follows = follows
        self._access = AccessPolicy.of(config.ha_secret, config.ha_allowed_peers)
        self._proofs = Proofs(config.ha_secret)

    def answer(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        body = request.body_bytes()
        admission = self._access.admission(channel.peer)
        if admission is Admission.REFUSED:
            raise CommandError(
                ResponseCode.NO_PERMISSION, "not in haAllowedPeers, and there is no haSecret"
            )
        if admission is Admission.CHALLENGE and not self._is_proven(request, body):
            challenge = self._proofs.give(os.urandom(CHALLENGE_BYTES))
            return request.response(
                ResponseCode.NO_PERMISSION,
                "the master asks for proof of the shared secret; set haSecret to the master's",
                {CHALLENGE_FIELD: challenge.hex()},
            )
        hello = Hello.decode(body)
        if hello.broker_name == self._broker_name:
            self._hear(hello)
        answer = self._answer_to(hello).encode()
        ext_fields: dict[str, ExtValue] = {}
        if self._access.secret:
            ext_fields[PROOF_FIELD] = self._proofs.of_master(hello.nonce, answer).hex()
        return request.response(ext_fields=ext_fields, body=answer)

    def _is_proven(self, request: RemotingCommand, body: bytes) -> bool:
        try:
            challenge = bytes.fromhex(request.ext_str(CHALLENGE_FIELD, ""))
            proof = bytes.fromhex(request.ext_str(PROOF_FIELD, ""))
        except ValueError:
            return False
        return self._proofs.takes(challenge, body, proof)

    def _hear(self, hello: Hello) -> None:
        mastership = self._mastership
        holder = f"a node that {hello.address} (brokerId {hello.home_id}) has heard of"
        if mastership.hear(hello.known_epoch, hello.known_nonce, holder):
            self._on_fenced(mastership.fenced_by)
        if hello.home_id != mastership.home_id:
            mastership.meet_members({**hello.members, hello.home_id: hello.address})

    def _answer_to(self, hello: Hello) -> HelloAnswer:
        mastership, store = self._mastership, self._store
        return HelloAnswer(
            broker_name=self._broker_name,
            home_id=mastership.home_id,
            address=self._address,
            log=Extent(mastership.history, store.min_phy_offset, store.max_phy_offset),
            known_epoch=mastership.begun[0],
            known_nonce=mastership.begun[1],
            members=mastership.members,
            standing=mastership.standing,
            follows=self._follows() if mastership.standing is not Standing.MASTER else "",
            checksums=tuple(checksum(store, span) for span in hello.spans),
        )


def checksum(store: LogSource, span: Span) -> int | None:
    """CRC of a stretch of the log; None if it is not held whole, or too long to be asked for."""
    offset, found = span.begin, 0
    if span.end - offset > PROOF_SPAN_BYTES or offset > span.end:
        return None
    try:
        while offset < span.end:
            piece = store.read_log(offset, span.end - offset)
            if not piece:
                return None
            found = crc32(piece, found)
            offset += len(piece)
    except OffsetOutOfRange:
        return None
    return found

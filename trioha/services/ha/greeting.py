"""Handler of HA_HELLO (30010): admits the sender of a hello; `trioha.ha.greeting` answers."""

from __future__ import annotations

from trioha.config import BrokerConfig
from trioha.config.secret_files import ha_keyring
from trioha.errors import CommandError
from trioha.ha.auth import AccessPolicy, Admission
from trioha.ha.greeting import Greeting
from trioha.ha.hello import Hello, Proofs
from trioha.ha.mastership import MEMBERS_MAX
from trioha.remoting.challenges import Challenges
from trioha.remoting.channel import Channel, Instant
from trioha.remoting.refusal_notes import RefusalNotes
from trioha.services.loop.host import random_bytes
from trioha.wire.codes import ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand

CHALLENGE_FIELD, PROOF_FIELD = "challenge", "proof"


class HaGreeting:
    """Asks for proofs of the shared secret, and gives its own."""

    def __init__(self, greeting: Greeting, config: BrokerConfig, refusals: RefusalNotes) -> None:
        self._refusals = refusals
        self._greeting = greeting
        keyring = ha_keyring(config)
        self._access = AccessPolicy.of(keyring, config.ha_allowed_peers)
        self._proofs = Proofs(keyring)
        self._challenges = Challenges(random_bytes)

    def answer(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        body = request.body_bytes()
        admission = self._access.admission(channel.peer)
        if admission is Admission.REFUSED:
            raise CommandError(
                ResponseCode.NO_PERMISSION, "not in haAllowedPeers, and there is no haSecret"
            )
        if admission is Admission.CHALLENGE and not self._is_proven(channel, request, body):
            challenge = self._challenges.give(channel)
            return request.response(
                ResponseCode.NO_PERMISSION,
                "the master asks for proof of the shared secret; set haSecret to the master's",
                {CHALLENGE_FIELD: challenge.hex()},
            )
        hello = Hello.decode(body)
        answer = self._greeting.greet(hello).encode()
        if self._greeting.leaves_out(hello):
            reason = (
                f"brokerId {hello.home_id} is not remembered as a member: {MEMBERS_MAX} are known; "
                "without a cluster secret, everybody can say hello"
            )
            self._refusals.note(channel, request, reason, instant.now_ms)
        ext_fields: dict[str, ExtValue] = {}
        if self._access.secret:
            ext_fields[PROOF_FIELD] = self._proofs.of_master(hello.nonce, answer).hex()
        return request.response(ext_fields=ext_fields, body=answer)

    def _is_proven(self, channel: Channel, request: RemotingCommand, body: bytes) -> bool:
        try:
            challenge = bytes.fromhex(request.ext_str(CHALLENGE_FIELD, ""))
            proof = bytes.fromhex(request.ext_str(PROOF_FIELD, ""))
        except ValueError:
            return False
        is_given = self._challenges.takes(channel, challenge)
        return is_given and self._proofs.is_of_slave(challenge, body, proof)

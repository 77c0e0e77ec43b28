"""Proofs that a request comes from a node of this cluster, or from its operator.

    caller                                       node
    request                                ──►   has a secret: does nothing
                                           ◄──   NO_PERMISSION, `nodeChallenge`: 32 random bytes
    the same request, `nodeChallenge`,
    `nodeNonce`: random, `nodeProof`       ──►   checks the proof, does what is asked
                                           ◄──   answer, `nodeProof`

Theory of operation. The proof is an HMAC-SHA256 over the challenge, the request's code, all of its
fields and its body, under the cluster's secret (`trioha.wire.keyring`). A challenge is given for
one connection and serves once, so what somebody overheard can be said again to nobody, and no field
can be changed. There is no clock in it: clocks of nodes and operators may differ.

The proof of the answer is an HMAC-SHA256 over the proof of the request, which covers the caller's
nonce, and over the answer's code, fields and body. So a caller knows that the answer comes from a
node of its cluster, and belongs to this very request. A caller that sends no nonce gets no proof.

Nothing is encrypted. Somebody between caller and node can read a request, hold it back, and let it
pass later on the same connection; not change it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping

import msgpack

from trioha.remoting.challenges import Challenges
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.refusal_notes import RefusalNotes
from trioha.wire.codes import ResponseCode
from trioha.wire.keyring import Keyring
from trioha.wire.packed_fields import ext_text
from trioha.wire.remoting_command import RemotingCommand

CHALLENGE_FIELD, PROOF_FIELD, NONCE_FIELD = "nodeChallenge", "nodeProof", "nodeNonce"
NONCE_BYTES = 16
_PURPOSE, _ANSWERS = b"trioha-node-request", b"trioha-node-answer"
_OUTSIDE = frozenset({PROOF_FIELD, "AccessKey", "Signature"})
"""Fields that the proof does not cover: itself, and an account's signature, which comes last."""
_ASK = (
    "this node asks for proof of the cluster's secret: set clusterSecretFile or "
    "TRIOHA_CLUSTER_SECRET, or use --secret-file"
)


class NodeProofs:
    """The challenges of one node. Without a secret it asks nobody for anything."""

    def __init__(
        self,
        keyring: Keyring,
        notes: RefusalNotes,
        random_bytes: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._keyring = keyring
        self._notes = notes
        self._challenges = Challenges(random_bytes)

    def guarded(
        self, handlers: Mapping[int, Handler], codes: Collection[int] | None = None
    ) -> dict[int, Handler]:
        """Return the handlers; those of `codes`, or all, get proven requests only."""
        wanted = handlers.keys() if codes is None else codes
        return {
            code: self._guarded(handler) if code in wanted else handler
            for code, handler in handlers.items()
        }

    def _guarded(self, handler: Handler) -> Handler:
        def answer(
            channel: Channel, request: RemotingCommand, instant: Instant
        ) -> RemotingCommand | None:
            # A request that goes on in a later turn was proven before its first.
            if self._keyring and request.progress is None:
                if not request.ext_str(PROOF_FIELD, ""):
                    return self._challenged(channel, request, _ASK)
                challenge = _bytes_of(request, CHALLENGE_FIELD)
                is_given = self._challenges.takes(channel, challenge)
                if not (is_given and is_proven(self._keyring, request)):
                    reason = "a request whose proof does not fit: another secret, or not its words"
                    self._notes.note(channel, request, reason, instant.now_ms)
                    return self._challenged(channel, request, f"{reason}; {_ASK}")
            response = handler(channel, request, instant)
            if response is not None and self._keyring and request.ext_str(NONCE_FIELD, ""):
                mac = self._keyring.mac(_signed_answer(request, response))
                response.ext_fields[PROOF_FIELD] = mac.hex()
            return response

        return answer

    def _challenged(
        self, channel: Channel, request: RemotingCommand, reason: str
    ) -> RemotingCommand:
        challenge = self._challenges.give(channel)
        return request.response(
            ResponseCode.NO_PERMISSION, reason, {CHALLENGE_FIELD: challenge.hex()}
        )


def is_challenge(response: RemotingCommand) -> bool:
    """Return whether a node wants proof before it does what was asked."""
    return response.code == ResponseCode.NO_PERMISSION and bool(
        response.ext_str(CHALLENGE_FIELD, "")
    )


def proven(
    keyring: Keyring, response: RemotingCommand, request: RemotingCommand, nonce: bytes = b""
) -> RemotingCommand:
    """Return the request anew, with the proof that the challenge in `response` asks for.

    With a `nonce`, random bytes, the node proves its answer too (`is_answer_proven`).
    """
    fields = {**request.ext_fields, CHALLENGE_FIELD: response.ext_str(CHALLENGE_FIELD, "")}
    if nonce:
        fields[NONCE_FIELD] = nonce.hex()
    signed = RemotingCommand(
        request.code,
        fields,
        request.body,
        flag=request.flag,
        remark=request.remark,
        version=request.version,
        language=request.language,
        serialize_type=request.serialize_type,
    )
    signed.ext_fields[PROOF_FIELD] = keyring.mac(_signed(signed)).hex()
    return signed


def is_proven(keyring: Keyring, request: RemotingCommand) -> bool:
    """Return whether the request's proof answers the challenge."""
    return keyring.is_mac(_signed(request), _bytes_of(request, PROOF_FIELD))


def is_answer_proven(keyring: Keyring, request: RemotingCommand, response: RemotingCommand) -> bool:
    """Return whether the sender of `response` has proven that it knows one of our secrets.

    `request`: as `proven` made it, with a nonce.
    """
    if not request.ext_str(NONCE_FIELD, ""):
        return False
    return keyring.is_mac(_signed_answer(request, response), _bytes_of(response, PROOF_FIELD))


def _bytes_of(command: RemotingCommand, field: str) -> bytes:
    try:
        return bytes.fromhex(command.ext_str(field, ""))
    except ValueError:
        return b""


def _signed(request: RemotingCommand) -> bytes:
    return _words(_PURPOSE, request)


def _signed_answer(request: RemotingCommand, response: RemotingCommand) -> bytes:
    return _words(_ANSWERS + _bytes_of(request, PROOF_FIELD), response)


def _words(purpose: bytes, command: RemotingCommand) -> bytes:
    # A field without a value does not go over the network. An account's signature covers the proof.
    fields = sorted(
        [name, ext_text(value)]
        for name, value in command.ext_fields.items()
        if name not in _OUTSIDE and value is not None
    )
    # msgpack keeps the length of each part, so no two commands have the same bytes.
    words: bytes = msgpack.packb(
        [purpose, int(command.code), fields, command.body_bytes()],
        unicode_errors="surrogatepass",
    )
    return words

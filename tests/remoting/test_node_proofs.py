"""Requests of nodes and operators: proven, or answered with a challenge and not carried out."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from support.handlers.sending import FakeChannel

from trioha.remoting.challenges import CHALLENGES_MAX, CONNECTIONS_MAX
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.node_proofs import (
    CHALLENGE_FIELD,
    PROOF_FIELD,
    NodeProofs,
    is_answer_proven,
    is_challenge,
    proven,
)
from trioha.remoting.refusal_notes import RefusalNotes
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import ResponseCode
from trioha.wire.keyring import Keyring
from trioha.wire.remoting_command import RemotingCommand, decode_frame, encode

OLD, NEW = "an old secret of the cluster", "a new secret of the cluster"
CODE = 30023


@attrs.define(eq=False)
class Node:
    """A node that counts what it has done."""

    keyring: Keyring
    done: list[RemotingCommand] = attrs.Factory(list)
    events: RecordedEvents = attrs.Factory(RecordedEvents)
    proofs: NodeProofs = attrs.field(init=False)
    handler: dict[int, Handler] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.proofs = NodeProofs(self.keyring, RefusalNotes(self.events))
        self.handler = self.proofs.guarded({CODE: self._do, CODE + 1: self._do})

    def ask(self, channel: FakeChannel, request: RemotingCommand) -> RemotingCommand:
        response = self.handler[request.code](channel, request, Instant(0, 0))
        assert response is not None
        return response

    def _do(self, channel: Channel, request: RemotingCommand, _: Instant) -> RemotingCommand:
        self.done.append(request)
        return request.response()


def request() -> RemotingCommand:
    return RemotingCommand(CODE, {"epoch": 7, "compressed": False, "name": "a"}, b"body")


def signed(node: Node, channel: FakeChannel, secret: str = NEW) -> RemotingCommand:
    """A request that the node has given a challenge for."""
    challenge = node.ask(channel, request())
    assert is_challenge(challenge)
    return proven(Keyring(secret), challenge, request())


def test_without_a_secret_nobody_is_asked() -> None:
    node = Node(Keyring())
    assert node.ask(FakeChannel(), request()).code == ResponseCode.SUCCESS
    assert len(node.done) == 1


def test_an_unsigned_request_does_nothing_and_is_told_what_to_set() -> None:
    node = Node(Keyring(NEW))
    response = node.ask(FakeChannel(), request())
    assert response.code == ResponseCode.NO_PERMISSION
    assert "clusterSecretFile" in (response.remark or "")
    assert node.done == []


def test_a_proven_request_is_carried_out_once() -> None:
    node, channel = Node(Keyring(NEW)), FakeChannel()
    command = signed(node, channel)
    assert node.ask(channel, command).code == ResponseCode.SUCCESS
    assert is_challenge(node.ask(channel, command))
    assert len(node.done) == 1
    (line,) = node.events.of("request_refused")
    assert line["code"] == CODE


def test_a_proof_is_of_one_connection() -> None:
    node, channel = Node(Keyring(NEW)), FakeChannel()
    command = signed(node, channel)
    assert is_challenge(node.ask(FakeChannel(), command))
    assert node.done == []


def test_another_secret_proves_nothing() -> None:
    node, channel = Node(Keyring(NEW)), FakeChannel()
    assert is_challenge(node.ask(channel, signed(node, channel, OLD)))
    assert node.done == []


def code(command: RemotingCommand) -> None:
    command.code = CODE + 1


def body(command: RemotingCommand) -> None:
    command.body = b"other"


def field(command: RemotingCommand) -> None:
    command.ext_fields["epoch"] = 8


def name(command: RemotingCommand) -> None:
    command.ext_fields["epochs"] = command.ext_fields.pop("epoch")


def more(command: RemotingCommand) -> None:
    command.ext_fields["forced"] = True


def less(command: RemotingCommand) -> None:
    del command.ext_fields["compressed"]


def no_proof(command: RemotingCommand) -> None:
    command.ext_fields[PROOF_FIELD] = "zz"


def no_challenge(command: RemotingCommand) -> None:
    command.ext_fields[CHALLENGE_FIELD] = "zz"


@pytest.mark.parametrize("change", [code, body, field, name, more, less, no_proof, no_challenge])
def test_a_request_that_was_changed_on_its_way_does_nothing(
    change: Callable[[RemotingCommand], None],
) -> None:
    node, channel = Node(Keyring(NEW)), FakeChannel()
    command = signed(node, channel)
    change(command)
    assert is_challenge(node.ask(channel, command))
    assert node.done == []


@pytest.mark.parametrize("serialize_type", [0, 1])
def test_a_proof_holds_in_either_serialization(serialize_type: int) -> None:
    node, channel = Node(Keyring(NEW)), FakeChannel()
    command = signed(node, channel)
    command.serialize_type = serialize_type
    arrived = decode_frame(encode(command))
    assert node.ask(channel, arrived).code == ResponseCode.SUCCESS


def test_while_a_secret_is_replaced_both_are_accepted_and_the_first_signs() -> None:
    channel = FakeChannel()
    for accepted in (Keyring(OLD, NEW), Keyring(NEW, OLD)):
        for signing in (Keyring(OLD, NEW), Keyring(NEW, OLD), Keyring(OLD), Keyring(NEW)):
            node = Node(accepted)
            challenge = node.ask(channel, request())
            assert node.ask(channel, proven(signing, challenge, request())).code == 0
    node = Node(Keyring(NEW))
    challenge = node.ask(channel, request())
    assert is_challenge(node.ask(channel, proven(Keyring(OLD, NEW), challenge, request())))


def test_open_challenges_are_bounded_and_several_of_one_connection_count() -> None:
    node, channel = Node(Keyring(NEW)), FakeChannel()
    commands = [signed(node, channel) for _ in range(CHALLENGES_MAX)]
    assert [node.ask(channel, command).code for command in commands] == [0] * CHALLENGES_MAX
    first = signed(node, channel)
    for _ in range(CHALLENGES_MAX):
        node.ask(channel, request())
    assert is_challenge(node.ask(channel, first))
    for _ in range(CONNECTIONS_MAX + 10):
        node.ask(FakeChannel(), request())
    assert len(node.proofs._challenges._given) == CONNECTIONS_MAX


def exchange(node: Node, nonce: bytes = b"n" * 16) -> tuple[RemotingCommand, RemotingCommand]:
    """A proven request and its answer, as they come over the network."""
    channel = FakeChannel()
    asked = proven(Keyring(NEW), node.ask(channel, request()), request(), nonce)
    answer = node.ask(channel, asked)
    return asked, decode_frame(encode(answer))


def test_the_answer_to_a_request_with_a_nonce_is_proven() -> None:
    asked, answer = exchange(Node(Keyring(NEW)))
    assert answer.code == ResponseCode.SUCCESS
    assert is_answer_proven(Keyring(OLD, NEW), asked, answer)
    assert not is_answer_proven(Keyring(OLD), asked, answer)


def test_no_word_of_a_proven_answer_can_be_changed() -> None:
    asked, answer = exchange(Node(Keyring(NEW)))
    fields = answer.ext_fields
    for changed in (
        RemotingCommand(ResponseCode.FENCED_MASTER_EPOCH, fields),
        RemotingCommand(answer.code, fields, b"x"),
        RemotingCommand(answer.code, {**fields, "epoch": "9"}),
        RemotingCommand(answer.code, {**fields, PROOF_FIELD: "no hex"}),
        RemotingCommand(answer.code),
    ):
        assert not is_answer_proven(Keyring(NEW), asked, changed)


def test_an_answer_proves_nothing_to_another_request() -> None:
    node = Node(Keyring(NEW))
    _, answer = exchange(node)
    asked, _ = exchange(node)
    assert not is_answer_proven(Keyring(NEW), asked, answer)
    without, answer = exchange(node, b"")
    assert PROOF_FIELD not in answer.ext_fields
    assert not is_answer_proven(Keyring(NEW), without, answer)

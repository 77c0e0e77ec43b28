"""Changes of operators leave a line that names the operator."""

from __future__ import annotations

import msgpack
import pytest
from support.handlers.sending import FakeChannel, at

from trioha.errors import CommandError
from trioha.remoting.channel import Channel, Instant
from trioha.remoting.node_proofs import NodeProofs, proven
from trioha.remoting.refusal_notes import RefusalNotes
from trioha.security.acl_file import parse_acl_file, rules_of
from trioha.security.guard import Guard
from trioha.security.requirements import Port
from trioha.security.secret_guard import SecretGuard
from trioha.security.signature import Credentials
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import RequestCode
from trioha.wire.keyring import Keyring
from trioha.wire.remoting_command import RemotingCommand

OPERATOR = Credentials("operator-1", "operator-secret")


class Rules:
    """Implements `trioha.security.guard.RulesSource`."""

    def __init__(self) -> None:
        text = "accounts: [{accessKey: operator-1, secretKey: operator-secret, admin: true}]"
        self.rules = rules_of([parse_acl_file("plain_acl.yml", text)])


def serve(channel: Channel, request: RemotingCommand, instant: Instant) -> RemotingCommand:
    return request.response()


def reject(channel: Channel, request: RemotingCommand, instant: Instant) -> RemotingCommand:
    return request.response(1, "no such topic")


def test_a_change_names_its_account_and_a_rejected_one_has_no_line() -> None:
    events = RecordedEvents()
    guard = Guard(Port.BROKER, Rules(), events=events)
    request = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "orders"})
    with pytest.raises(CommandError):
        guard.guarded(request.code, serve)(FakeChannel(), request, at(0))
    OPERATOR.sign(request)
    guard.guarded(request.code, reject)(FakeChannel(), request, at(0))
    assert events.of("operator_change") == []
    channel = FakeChannel()
    guard.guarded(request.code, serve)(channel, request, at(0))
    assert events.of("operator_change") == [
        {
            "code": 215,
            "request": "DELETE_TOPIC_IN_BROKER",
            "what": "topic=orders",
            "peer": channel.peer,
            "account": "operator-1",
        }
    ]
    read = RemotingCommand(RequestCode.GET_BROKER_CONFIG)
    OPERATOR.sign(read)
    guard.guarded(read.code, serve)(channel, read, at(0))
    assert len(events.of("operator_change")) == 1


def test_by_the_secret_alone_nobody_has_a_name() -> None:
    events, keyring, channel = (
        RecordedEvents(),
        Keyring("the secret of this cluster"),
        FakeChannel(),
    )
    guard = SecretGuard(Port.BROKER, NodeProofs(keyring, RefusalNotes(events)), events)
    request = RemotingCommand(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T", "AccessKey": "me"})
    handler = guard.guarded(request.code, serve)
    challenge = handler(channel, request, at(0))
    assert challenge is not None
    assert events.of("operator_change") == []
    handler(channel, proven(keyring, challenge, request), at(0))
    (line,) = events.of("operator_change")
    assert (line["what"], line["account"]) == ("topic=T", "")


def test_a_change_of_a_raft_group_says_which() -> None:
    events = RecordedEvents()
    guard = SecretGuard(Port.BROKER, NodeProofs(Keyring(), RefusalNotes(events)), events)
    for body in (msgpack.packb({"do": "remove", "member": "n2"}), b"\xc1", b"\x01"):
        request = RemotingCommand(RequestCode.TRIOHA_RAFT_ADMIN, body=body)
        guard.guarded(request.code, serve)(FakeChannel(), request, at(0))
    assert [line["what"] for line in events.of("operator_change")] == [
        "do=remove member=n2",
        "",
        "",
    ]

"""The check before handlers: callers that pass, and the words of rejections."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.handlers.sending import FakeChannel, at

from trioha.broker.request_gate import RequestGate
from trioha.broker.set_modes import PAUSED, SERVING
from trioha.remoting.channel import Channel, Instant
from trioha.security.acl_file import parse_acl_file, rules_of
from trioha.security.guard import Guard, _is_known_send
from trioha.security.node_signer import NodeSigner
from trioha.security.requirement import Right
from trioha.security.requirements import REQUIREMENTS, Port
from trioha.security.signature import Credentials
from trioha.security.signing_key import ACCESS_KEY, SIGNATURE
from trioha.services.loop.clock import Clock
from trioha.services.node.request_forwarding import RequestForwarding
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire import fastjson
from trioha.wire.bodies import LockBatchBody, MessageQueue
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.heartbeat import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from trioha.wire.packed_fields import pack_fields
from trioha.wire.remoting_command import ExtValue, RemotingCommand

FILE = """
globalWhiteRemoteAddresses:
- 10.9.9.*
accounts:
- accessKey: operator-1
  secretKey: operator-secret
  admin: true
- accessKey: producer-1
  secretKey: producer-secret
  topicPerms: [own=PUB]
- accessKey: consumer-1
  secretKey: consumer-secret
  whiteRemoteAddress: 10.8.8.8
  topicPerms: [own=SUB]
  groupPerms: [own-group=SUB]
"""
OPERATOR = Credentials("operator-1", "operator-secret")
PRODUCER = Credentials("producer-1", "producer-secret")
CONSUMER = Credentials("consumer-1", "consumer-secret")
JAVA = "org.apache.rocketmq.acl.common.AclException: "
C = RequestCode


class Rules:
    """Implements `trioha.security.guard.RulesSource`."""

    def __init__(self, text: str = FILE) -> None:
        self.rules = rules_of([parse_acl_file("plain_acl.yml", text)])


def topic_at(phy_offset: int) -> str:
    return {100: "own", 200: "foreign", 300: "%RETRY%own-group", 400: "%RETRY%other"}.get(
        phy_offset, ""
    )


class Bench:
    """A gate with checks, whose handlers remember what they served."""

    def __init__(self, is_node: Callable[[Channel, RemotingCommand], bool] | None = None) -> None:
        self.channel = FakeChannel()
        self.served: list[int] = []
        self.source = Rules()
        guard = Guard(
            Port.BROKER, self.source, topic_at, is_node or (lambda channel, request: False)
        )
        self.gate = RequestGate(
            [dict.fromkeys(REQUIREMENTS[Port.BROKER], self._serve)],
            RequestForwarding(Clock(), RecordedEvents()),
            RecordedEvents(),
            self._serve,
            checks=guard,
        )

    def _serve(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        self.served.append(request.code)
        return request.response()

    def ask(
        self,
        code: int,
        fields: dict[str, ExtValue] | None = None,
        body: bytes = b"",
        by: Credentials | None = None,
    ) -> str:
        """Ask one request; what it is rejected with, without the name of Java's exception."""
        request = RemotingCommand(code, dict(fields or {}), body)
        if by is not None:
            by.sign(request)
        return self.handle(request)

    def send_packed(self, by: Credentials, topic: str = "own", body: bytes = b"x") -> str:
        """Send a message as Java's client does, signed for the body b"x"."""
        request = packed_send(by, topic)
        request.body = body
        return self.handle(request)

    def handle(self, request: RemotingCommand) -> str:
        count = len(self.served)
        response = self.gate.handle(self.channel, request, at())
        assert response is not None
        if response.code == ResponseCode.SUCCESS:
            assert len(self.served) == count + 1
            return ""
        assert len(self.served) == count, "rejected, and carried out all the same"
        assert response.code == ResponseCode.SYSTEM_ERROR
        remark = response.remark or ""
        assert remark.startswith(JAVA)
        return remark.removeprefix(JAVA)


def packed_send(by: Credentials, topic: str = "own") -> RemotingCommand:
    """A signed send in the packed form of Java's client, which has its table twice."""
    signed = RemotingCommand(C.SEND_MESSAGE_V2, {"a": "g", "b": topic, "e": "0"}, b"x")
    once = pack_fields(signed.ext_fields)
    by.sign(signed)
    packed = once + pack_fields(signed.ext_fields)
    return RemotingCommand(signed.code, None, b"x", serialize_type=1, encoded_fields=packed)


SEND = REQUIREMENTS[Port.BROKER][C.SEND_MESSAGE_V2]
CHECKED = [code for code, one in REQUIREMENTS[Port.BROKER].items() if not one.by_connection]


@pytest.mark.parametrize("code", CHECKED)
def test_no_code_is_carried_out_without_a_right_signature(code: RequestCode) -> None:
    bench = Bench()
    assert bench.ask(code) == "No accessKey is configured"
    assert bench.ask(code, {ACCESS_KEY: "operator-1"}).startswith("Check signature failed")
    stranger = Credentials("stranger-1", "operator-secret")
    assert bench.ask(code, by=stranger) == "No acl config for stranger-1"
    forger = Credentials("operator-1", "not-the-secret")
    assert bench.ask(code, by=forger) == "Check signature failed for accessKey=operator-1"
    assert not bench.served


@pytest.mark.parametrize("code", CHECKED)
def test_an_account_without_rights_gets_nothing_of_others(code: RequestCode) -> None:
    bench = Bench()
    requirement = REQUIREMENTS[Port.BROKER][code]
    if requirement.right in (Right.ADMIN, Right.NODE):
        words = (
            f"Need admin permission for request code={int(code)}, but accessKey=consumer-1 is not"
        )
        assert bench.ask(code, by=CONSUMER) == words
        return
    fields: dict[str, ExtValue] = {}
    body = b""
    if requirement.topic:
        fields[requirement.topic] = "foreign"
    if requirement.group:
        fields[requirement.group] = "own-group"
    if requirement.message:
        fields[requirement.message] = "200"
    if code is C.HEART_BEAT:
        consumer = ConsumerData("own-group", subscriptions=[SubscriptionData("foreign")])
        body = HeartbeatData("me", [], [consumer]).encode()
    elif code in (C.LOCK_BATCH_MQ, C.UNLOCK_BATCH_MQ):
        body = LockBatchBody("own-group", "me", [MessageQueue("foreign", "b", 0)]).encode()
    elif code is C.BATCH_ACK_MESSAGE:
        body = fastjson.dumps({"acks": [{"c": "own-group", "t": "foreign", "r": "1"}]})
    elif code is C.QUERY_ASSIGNMENT:
        body = fastjson.dumps({"consumerGroup": "own-group", "topic": "foreign"})
    elif code is C.CHECK_CLIENT_CONFIG:
        body = fastjson.dumps({"group": "own-group", "subscriptionData": {"topic": "foreign"}})
    if requirement.group and not (requirement.topic or requirement.message):
        fields[requirement.group] = "other"
        assert bench.ask(code, fields, body, CONSUMER) == "No default permission for group:other"
    else:
        words = "No default permission for topic:foreign"
        assert bench.ask(code, fields, body, CONSUMER) == words


@pytest.mark.parametrize("code", CHECKED)
def test_an_admin_may_send_every_code(code: RequestCode) -> None:
    body = b"{}" if REQUIREMENTS[Port.BROKER][code].body else b""
    assert Bench().ask(code, {}, body, OPERATOR) == ""


def test_a_producer_sends_to_its_own_topics() -> None:
    bench = Bench()
    assert bench.ask(C.SEND_MESSAGE, {"topic": "own"}, b"x", PRODUCER) == ""
    assert bench.ask(C.SEND_MESSAGE_V2, {"b": "own"}, b"x", PRODUCER) == ""
    denied = "No default permission for topic:foreign"
    for code in (C.SEND_MESSAGE_V2, C.SEND_BATCH_MESSAGE, C.SEND_REPLY_MESSAGE_V2):
        assert bench.ask(code, {"b": "foreign"}, b"x", PRODUCER) == denied
    assert bench.ask(C.SEND_MESSAGE_V2, {"b": "own"}, b"x", CONSUMER) == (
        "No default permission for topic:own"
    )


def test_a_send_in_java_s_packed_form_is_checked_by_the_same_rules() -> None:
    """The second one to a topic is judged from its bytes alone."""
    bench = Bench()
    assert bench.send_packed(PRODUCER) == ""
    assert _is_known_send(bench.source.rules, packed_send(PRODUCER), SEND)
    assert bench.send_packed(PRODUCER) == ""
    denied = "No default permission for topic:foreign"
    assert bench.send_packed(PRODUCER, "foreign") == denied
    wrong = "Check signature failed for accessKey=producer-1"
    forger = Credentials("producer-1", "guessed-secret")
    assert bench.send_packed(forger) == wrong
    assert bench.send_packed(PRODUCER, body=b"y") == wrong
    stranger = Credentials("producer-2", "producer-secret")
    assert bench.send_packed(stranger) == "No acl config for producer-2"
    assert bench.send_packed(CONSUMER) == "No default permission for topic:own"
    bench.source.rules = Rules(FILE.replace("own=PUB", "own=DENY")).rules
    assert bench.send_packed(PRODUCER) == "No default permission for topic:own"


def test_a_retry_topic_belongs_to_its_group_whatever_the_header_says() -> None:
    """Java's broker asks for the group that the header names, and stores in the other's topic."""
    bench = Bench()
    mine: dict[str, ExtValue] = {"a": "own-group", "b": "%RETRY%own-group"}
    assert bench.ask(C.SEND_MESSAGE_V2, mine, b"x", CONSUMER) == ""
    stock: dict[str, ExtValue] = {"a": "CLIENT_INNER_PRODUCER", "b": "%RETRY%own-group"}
    assert bench.ask(C.SEND_MESSAGE_V2, stock, b"x", CONSUMER) == ""
    foreign: dict[str, ExtValue] = {"a": "own-group", "b": "%RETRY%other"}
    denied = "No default permission for group:other"
    assert bench.ask(C.SEND_MESSAGE_V2, foreign, b"x", CONSUMER) == denied


def test_a_popped_message_belongs_to_its_topic_and_its_group_by_whatever_retry_topic() -> None:
    bench = Bench()
    for code in (C.ACK_MESSAGE, C.CHANGE_MESSAGE_INVISIBLETIME):
        for topic, group, denied in (
            ("own", "own-group", ""),
            ("%RETRY%own-group_own", "own-group", ""),
            ("%RETRY%own-group+own", "own-group", ""),
            ("%RETRY%own-group_foreign", "own-group", "topic:foreign"),
            ("%RETRY%other_own", "own-group", "group:other_own"),
            ("%RETRY%other_own", "other", "group:other"),
            ("own", "other", "group:other"),
        ):
            words = f"No default permission for {denied}" if denied else ""
            fields: dict[str, ExtValue] = {"topic": topic, "consumerGroup": group}
            assert bench.ask(code, fields, by=CONSUMER) == words
    for group, denied in (("own-group", ""), ("other", "group:other")):
        words = f"No default permission for {denied}" if denied else ""
        body = fastjson.dumps({"acks": [{"consumerGroup": group, "topic": "own"}]})
        assert bench.ask(C.BATCH_ACK_MESSAGE, {}, body, CONSUMER) == words


def test_a_message_that_is_named_by_its_offset_belongs_to_its_topic() -> None:
    bench = Bench()
    for phy_offset, denied in ((100, ""), (300, ""), (200, "topic:foreign"), (400, "group:other")):
        words = f"No default permission for {denied}" if denied else ""
        fields: dict[str, ExtValue] = {"offset": phy_offset}
        assert bench.ask(C.VIEW_MESSAGE_BY_ID, fields, by=CONSUMER) == words
        fields |= {"group": "own-group", "originTopic": "own"}
        assert bench.ask(C.CONSUMER_SEND_MSG_BACK, fields, by=CONSUMER) == words


def test_a_message_that_is_not_here_is_not_looked_for_elsewhere() -> None:
    """A demoted master forwards such a request to a node that has more log."""
    bench = Bench()
    request = RemotingCommand(C.CONSUMER_SEND_MSG_BACK, {"group": "own-group", "offset": "999"})
    CONSUMER.sign(request)
    answer = bench.gate.handle(bench.channel, request, at())
    assert answer is not None
    assert answer.remark == "can not find message by the offset, 999"
    assert not bench.served


def test_a_heartbeat_needs_all_that_it_subscribes_to() -> None:
    bench = Bench()

    def beat(group: str, topic: str) -> bytes:
        consumer = ConsumerData(
            group,
            subscriptions=[SubscriptionData(topic), SubscriptionData(f"%RETRY%{group}")],
        )
        return HeartbeatData("me", [ProducerData("any")], [consumer]).encode()

    assert bench.ask(C.HEART_BEAT, {}, beat("own-group", "own"), CONSUMER) == ""
    foreign = bench.ask(C.HEART_BEAT, {}, beat("own-group", "foreign"), CONSUMER)
    assert foreign == "No default permission for topic:foreign"
    other = bench.ask(C.HEART_BEAT, {}, beat("other", "own"), CONSUMER)
    assert other == "No default permission for group:other"
    only_produces = HeartbeatData("me", [ProducerData("any")], []).encode()
    assert bench.ask(C.HEART_BEAT, {}, only_produces, PRODUCER) == ""


def test_a_body_is_not_decoded_for_a_wrong_signature() -> None:
    bench = Bench()
    words = bench.ask(C.HEART_BEAT, {}, b"{" * 100, Credentials("consumer-1", "not-the-secret"))
    assert words.startswith("Check signature failed")


def test_white_lists_admit_without_a_signature() -> None:
    bench = Bench()
    bench.channel.peer = "10.9.9.1:5555"
    assert bench.ask(C.DELETE_TOPIC_IN_BROKER) == ""
    bench.channel.peer = "10.8.8.8:5555"
    assert bench.ask(C.SEND_MESSAGE, {"topic": "own"}) == "No accessKey is configured"
    assert bench.ask(C.SEND_MESSAGE, {"topic": "any", ACCESS_KEY: "consumer-1"}) == ""
    words = bench.ask(C.SEND_MESSAGE, {"topic": "any", ACCESS_KEY: "producer-1"})
    assert words == "Check signature failed for accessKey=producer-1"


def test_a_node_that_proves_itself_needs_no_account() -> None:
    bench = Bench(lambda channel, request: request.code == C.HA_HELLO)
    assert bench.ask(C.HA_HELLO) == ""
    assert bench.ask(C.PROMOTE) == "No accessKey is configured"
    # A right of operators is not one of nodes.
    assert Bench(lambda channel, request: True).ask(C.UPDATE_AND_CREATE_TOPIC) != ""


def test_a_new_text_counts_from_the_next_request() -> None:
    bench = Bench()

    def send() -> str:
        return bench.ask(C.SEND_MESSAGE, {"topic": "own"}, b"x", PRODUCER)

    assert send() == ""
    bench.source.rules = Rules(FILE.replace("producer-1", "producer-2")).rules
    assert send() == "No acl config for producer-1"
    bench.source.rules = Rules(FILE.replace("own=PUB", "own=DENY")).rules
    assert send() == "No default permission for topic:own"


def test_a_parked_request_is_checked_when_it_comes_and_not_again() -> None:
    bench = Bench()
    bench.gate.park(PAUSED)
    for by in (PRODUCER, None):
        request = RemotingCommand(C.SEND_MESSAGE_V2, {"b": "own"}, b"x")
        if by is not None:
            by.sign(request)
        response = bench.gate.handle(bench.channel, request, at())
        assert (response is None) == (by is not None)
    assert bench.gate.parked_count == 1
    bench.source.rules = Rules("accounts:").rules
    bench.gate.serve(SERVING, at())
    assert bench.served == [C.SEND_MESSAGE_V2]


def test_without_checks_the_gate_calls_the_handlers_themselves() -> None:
    """Access control that is off costs nothing per request."""

    def serve(channel: Channel, request: RemotingCommand, instant: Instant) -> RemotingCommand:
        return request.response()

    forwarding = RequestForwarding(Clock(), RecordedEvents())
    gate = RequestGate([{C.SEND_MESSAGE: serve}], forwarding, RecordedEvents(), serve)
    answer = gate.handle(FakeChannel(), RemotingCommand(C.SEND_MESSAGE, {}, b""), at())
    assert answer is not None
    assert answer.code == ResponseCode.SUCCESS


def test_a_node_signs_in_place_of_the_client() -> None:
    bench = Bench()
    signer = NodeSigner(bench.source)
    request = RemotingCommand(C.SEND_MESSAGE, {"topic": "foreign"}, b"x")
    PRODUCER.sign(request)
    signer.sign(request)
    assert request.ext_fields[ACCESS_KEY] == "operator-1"
    response = bench.gate.handle(bench.channel, request, at())
    assert response is not None
    assert response.code == ResponseCode.SUCCESS
    bench.source.rules = Rules("accounts:").rules
    untouched = RemotingCommand(C.SEND_MESSAGE, {"topic": "own"})
    signer.sign(untouched)
    assert SIGNATURE not in untouched.ext_fields


def test_the_caller_is_known_by_a_right_signature_only() -> None:
    guard = Guard(Port.BROKER, Rules())
    request = RemotingCommand(C.RELEASE, {})
    assert guard.caller(FakeChannel(), request) == ""
    OPERATOR.sign(request)
    assert guard.caller(FakeChannel(), request) == "operator-1"
    Credentials("operator-1", "not-the-secret").sign(request)
    assert guard.caller(FakeChannel(), request) == ""


@pytest.mark.parametrize("code", sorted(REQUIREMENTS[Port.NAMESRV]))
def test_a_name_server_serves_routes_alone_to_strangers(code: RequestCode) -> None:
    served: list[int] = []

    def serve(channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        served.append(request.code)

    guard = Guard(Port.NAMESRV, Rules())
    handler = guard.guarded(code, serve)
    if REQUIREMENTS[Port.NAMESRV][code].right is Right.ANONYMOUS:
        assert handler is serve
        return
    for by in (None, PRODUCER, Credentials("operator-1", "not-the-secret")):
        request = RemotingCommand(code, {})
        if by is not None:
            by.sign(request)
        with pytest.raises(Exception, match="AclException"):
            handler(FakeChannel(), request, at())
    assert not served
    request = RemotingCommand(code, {})
    OPERATOR.sign(request)
    handler(FakeChannel(), request, at())
    assert served == [code]

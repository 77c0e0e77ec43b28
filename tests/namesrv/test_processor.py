from __future__ import annotations

import json
from zlib import crc32

import attrs
import pytest
from support.handlers.namesrv import (
    MASTER,
    SLAVE,
    broker_fields,
    register_request,
    route_request,
    topics,
)
from support.handlers.sending import FakeChannel, at

from trioha.config import NamesrvConfig
from trioha.errors import CommandError, RemoteProtocolError
from trioha.namesrv import processor
from trioha.namesrv.kv_config import KvConfig
from trioha.namesrv.processor import UNSAVED_MAX, NamesrvProcessor
from trioha.namesrv.route_info import BrokerAddress
from trioha.remoting.channel import Instant
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.bodies import (
    DataVersion,
    decode_kv_table,
    decode_topic_list,
)
from trioha.wire.codes import ONEWAY_FLAG, LanguageCode, RequestCode, ResponseCode
from trioha.wire.epoch_numbers import EPOCH_MAX, Word
from trioha.wire.remoting_command import ExtValue, RemotingCommand
from trioha.wire.route import ClusterInfo, RegisterBrokerBody, TopicRouteData


class Namesrv:
    """A processor, asked through one connection unless another is named."""

    def __init__(self, config: NamesrvConfig | None = None) -> None:
        self.events = RecordedEvents()
        self.processor = NamesrvProcessor(config or NamesrvConfig(), KvConfig(), self.events)
        self.channel = FakeChannel()
        self.handlers = self.processor.handlers()

    def ask(
        self,
        request: RemotingCommand,
        channel: FakeChannel | None = None,
        now_ms: int = 0,
    ) -> RemotingCommand:
        channel = channel or self.channel
        response = self.handlers[request.code](channel, request, Instant(now_ms, 0))
        if response is None:
            assert self.processor.has_unsaved
            self.processor.saved(self.processor.take_unsaved())
            response = channel.sent.pop()
        return response

    def call(
        self, code: RequestCode, fields: dict[str, ExtValue] | None = None, body: bytes = b""
    ) -> RemotingCommand:
        return self.ask(RemotingCommand(code, fields or {}, body))

    def is_on_disk(self) -> bool:
        return self.processor.is_on_disk

    def refusal(self, request: RemotingCommand) -> int:
        with pytest.raises(CommandError) as refusal:
            self.ask(request)
        return refusal.value.code


def test_every_code_of_a_name_server_is_served() -> None:
    codes = {100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 219, 224, 304, 311, 312, 313}
    assert set(Namesrv().handlers) == codes | {318, 319, 322, 327}


def test_a_route_is_answered_by_the_version_of_who_asks() -> None:
    """Gotchas 1, 2 and 10."""
    namesrv = Namesrv()
    namesrv.ask(register_request())
    old = namesrv.ask(route_request("T", version=317)).body_bytes()
    new = namesrv.ask(route_request("T", version=401)).body_bytes()
    asking = route_request("T", version=121)
    asking.ext_fields["acceptStandardJsonOnly"] = "true"
    assert b'{0:"10.0.0.1:10911"}' in old
    assert b'{"0":"10.0.0.1:10911"}' in new
    assert namesrv.ask(asking).body_bytes() == new
    assert b" " not in old + new
    assert TopicRouteData.decode(old) == TopicRouteData.decode(new)


def test_a_rust_client_is_told_that_no_slave_acts_as_a_master() -> None:
    """The crate rocketmq-client-rust 1.0.0 refuses a route without the field."""
    namesrv = Namesrv()
    namesrv.ask(register_request())
    request = route_request("T")
    request.language = LanguageCode.RUST
    told = json.loads(namesrv.ask(request).body_bytes())
    assert [one["enableActingMaster"] for one in told["brokerDatas"]] == [False]
    assert b"enableActingMaster" not in namesrv.ask(route_request("T")).body_bytes()


def test_an_unknown_topic_is_answered_17() -> None:
    """Gotcha 18: clients then ask for TBW102's route."""
    assert Namesrv().refusal(route_request("T")) == ResponseCode.TOPIC_NOT_EXIST


def test_order_configuration_comes_with_the_route_only_when_enabled() -> None:
    order: dict[str, ExtValue] = {
        "namespace": "ORDER_TOPIC_CONFIG",
        "key": "T",
        "value": "broker-a:4",
    }
    for enabled in (False, True):
        namesrv = Namesrv(NamesrvConfig(order_message_enable=enabled))
        namesrv.ask(register_request())
        namesrv.call(RequestCode.PUT_KV_CONFIG, order)
        route = TopicRouteData.decode(namesrv.ask(route_request("T")).body_bytes())
        assert route.order_topic_conf == ("broker-a:4" if enabled else None)
        answer = namesrv.ask(register_request())
        assert decode_kv_table(answer.body_bytes()) == {"T": "broker-a:4"}


def test_a_slave_learns_its_master_from_its_registration() -> None:
    namesrv = Namesrv()
    answer = namesrv.ask(register_request())
    assert (answer.ext_fields, answer.body_bytes()) == ({}, b"")
    answer = namesrv.ask(register_request(SLAVE), FakeChannel())
    assert answer.ext_fields == {"haServerAddr": "10.0.0.1:10912", "masterAddr": "10.0.0.1:10911"}
    assert namesrv.events.of("broker_registered") == [
        {"broker": "broker-a", "id": 0, "address": "10.0.0.1:10911", "cluster": "C"},
        {"broker": "broker-a", "id": 1, "address": "10.0.0.2:10911", "cluster": "C"},
    ]


@pytest.mark.parametrize("epoch", [-1, 1 + Word.UNASKED + 1, EPOCH_MAX, EPOCH_MAX + 1, 2**63 - 1])
def test_a_claim_with_an_epoch_that_cannot_be_is_refused_and_forgotten(epoch: int) -> None:
    namesrv = Namesrv()
    namesrv.ask(register_request(MASTER, epoch=1, nonce="aa"))
    stranger = BrokerAddress("C", "broker-a", 0, "10.6.6.6:10911")
    for _ in range(2):
        with pytest.raises(RemoteProtocolError, match="claims to be master of broker-a: epoch"):
            namesrv.ask(register_request(stranger, epoch=epoch, nonce="ff"))
    assert [line["code"] for line in namesrv.events.of("request_refused")] == [103]
    # The master's next registration is taken, as if nothing had been said.
    assert namesrv.ask(register_request(MASTER, epoch=1, nonce="aa")).code == ResponseCode.SUCCESS
    info = ClusterInfo.decode(namesrv.call(RequestCode.GET_BROKER_CLUSTER_INFO).body_bytes())
    assert dict(info.broker_addr_table["broker-a"].broker_addrs) == {0: MASTER.address}


def test_a_name_server_that_knows_no_claim_takes_the_number_of_a_repaired_set() -> None:
    namesrv = Namesrv()
    repaired = 1 + Word.UNASKED + 10
    answer = namesrv.ask(register_request(MASTER, epoch=repaired, nonce="aa"))
    assert answer.code == ResponseCode.SUCCESS


def test_a_deposed_master_is_refused_and_told_who_took_its_place() -> None:
    namesrv = Namesrv()
    successor = BrokerAddress("C", "broker-a", 0, "10.0.0.2:10911")
    old = register_request(MASTER, epoch=1, nonce="aa")
    assert namesrv.ask(old).code == 0
    new = register_request(successor, epoch=2, nonce="bb", ha_server_addr="10.0.0.2:10912")
    assert namesrv.ask(new, FakeChannel()).code == 0
    # Whichever of the two comes last (fault D5).
    refused = namesrv.ask(old)
    assert refused.code == ResponseCode.FENCED_MASTER_EPOCH
    assert refused.ext_fields == {
        "epoch": 2,
        "epochNonce": "bb",
        "masterAddr": successor.address,
        "haServerAddr": "10.0.0.2:10912",
    }
    assert "10.0.0.2:10911 is master since epoch 2, epoch 1 is over" in (refused.remark or "")
    info = ClusterInfo.decode(namesrv.call(RequestCode.GET_BROKER_CLUSTER_INFO).body_bytes())
    assert dict(info.broker_addr_table["broker-a"].broker_addrs) == {0: successor.address}
    assert namesrv.events.of("master_refused")[0]["master"] == successor.address
    # The name server accepts it as a slave of its successor.
    follower = attrs.evolve(MASTER, broker_id=1)
    answer = namesrv.ask(register_request(follower))
    assert answer.ext_fields["masterAddr"] == successor.address


def test_registrations_are_news_only_once() -> None:
    namesrv = Namesrv()
    for _ in range(3):
        namesrv.ask(register_request())
    assert namesrv.events.names() == ["broker_registered"]


@pytest.mark.parametrize("compressed", [False, True])
def test_a_registration_is_read_in_both_forms_and_its_checksum_looked_at(compressed: bool) -> None:
    namesrv = Namesrv()
    request = register_request()
    body = RegisterBrokerBody(DataVersion(1, 1), topics("T")).encode(compressed=compressed)
    request.body = memoryview(body)
    request.ext_fields.update({"compressed": compressed, "bodyCrc32": crc32(body) & 0x7FFFFFFF})
    namesrv.ask(request)
    assert namesrv.processor.routes.topics() == ["T"]
    request.ext_fields["bodyCrc32"] = (crc32(body) & 0x7FFFFFFF) ^ 1
    assert namesrv.refusal(request) == ResponseCode.SYSTEM_ERROR


def test_what_5x_adds_to_a_registration_is_ignored() -> None:
    namesrv = Namesrv()
    request = register_request()
    request.version = 479
    request.ext_fields.update({"heartbeatTimeoutMillis": "1000", "enableActingMaster": "false"})
    namesrv.ask(request)
    assert namesrv.processor.routes.topics() == ["T"]


def test_a_registration_without_body_only_announces_the_broker() -> None:
    namesrv = Namesrv()
    request = register_request()
    request.body = b""
    namesrv.ask(request)
    assert len(namesrv.processor.routes._live) == 1


@pytest.mark.parametrize("field", ["brokerName", "brokerAddr", "clusterName", "brokerId"])
def test_a_registration_that_lacks_a_field_changes_nothing(field: str) -> None:
    namesrv = Namesrv()
    request = register_request()
    del request.ext_fields[field]
    with pytest.raises(RemoteProtocolError, match=field):
        namesrv.ask(request)
    assert len(namesrv.processor.routes._live) == 0


def test_the_end_of_a_broker_is_journaled_by_its_kind() -> None:
    namesrv = Namesrv()
    namesrv.ask(register_request())
    namesrv.call(RequestCode.UNREGISTER_BROKER, broker_fields(MASTER))
    namesrv.ask(register_request())
    namesrv.processor.channel_closed(namesrv.channel)
    namesrv.ask(register_request())
    assert namesrv.processor.next_deadline_ms == 120_001
    namesrv.processor.on_time(Instant(120_001, 0))
    assert namesrv.channel.closed
    ends = [it for it in namesrv.events.events if it[0] != "broker_registered"]
    assert [(name, fields.get("reason")) for name, fields in ends] == [
        ("broker_unregistered", "asked"),
        ("broker_unregistered", "connection closed"),
        ("broker_expired", None),
    ]


def test_data_versions_are_compared_and_answered() -> None:
    namesrv = Namesrv()
    query = RemotingCommand(
        RequestCode.QUERY_DATA_VERSION, broker_fields(MASTER), DataVersion(1, 1).encode()
    )
    unknown = namesrv.ask(query)
    assert (unknown.ext_bool("changed"), unknown.body_bytes()) == (True, b"")
    namesrv.ask(register_request())
    same = namesrv.ask(query)
    assert not same.ext_bool("changed", True)
    assert DataVersion.decode(same.body_bytes()) == DataVersion(1, 1)


def test_cluster_info_lists_brokers_and_clusters() -> None:
    namesrv = Namesrv()
    namesrv.ask(register_request())
    info = ClusterInfo.decode(namesrv.call(RequestCode.GET_BROKER_CLUSTER_INFO).body_bytes())
    assert info.cluster_addr_table == {"C": ("broker-a",)}
    assert info.broker_addr_table["broker-a"].broker_addrs == {0: "10.0.0.1:10911"}


def test_topic_lists_are_answered() -> None:
    namesrv = Namesrv()
    namesrv.ask(register_request())

    def listed(code: RequestCode, **fields: str) -> tuple[str, ...]:
        return decode_topic_list(namesrv.call(code, dict(fields)).body_bytes())

    assert listed(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER) == ("T",)
    assert listed(RequestCode.GET_TOPICS_BY_CLUSTER, cluster="C") == ("T",)
    assert listed(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS) == ("C", "broker-a")
    for code in (
        RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
    ):
        assert listed(code) == ()
    system = namesrv.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS).body_bytes()
    assert b'"brokerAddr":"10.0.0.1:10911"' in system


def test_topics_are_deleted_and_permissions_changed() -> None:
    namesrv = Namesrv()
    namesrv.ask(register_request())
    wiped = namesrv.call(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    added = namesrv.call(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    assert (wiped.ext_int("wipeTopicCount"), added.ext_int("addTopicCount")) == (1, 1)
    namesrv.call(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T", "clusterName": "C"})
    assert namesrv.refusal(route_request("T")) == ResponseCode.TOPIC_NOT_EXIST


def test_kv_entries_are_put_listed_and_deleted() -> None:
    namesrv = Namesrv()
    name: dict[str, ExtValue] = {"namespace": "ns", "key": "k"}
    assert namesrv.call(RequestCode.PUT_KV_CONFIG, name | {"value": "v"}).code == 0
    assert namesrv.call(RequestCode.GET_KV_CONFIG, name).ext_fields == {"value": "v"}
    listed = namesrv.call(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "ns"})
    assert listed.body_bytes() == b'{"table":{"k":"v"}}'
    assert namesrv.call(RequestCode.DELETE_KV_CONFIG, name).code == 0
    assert namesrv.call(RequestCode.DELETE_KV_CONFIG, name).code == 0
    missing = RemotingCommand(RequestCode.GET_KV_CONFIG, name)
    assert namesrv.refusal(missing) == ResponseCode.QUERY_NOT_FOUND
    missing = RemotingCommand(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "other"})
    assert namesrv.refusal(missing) == ResponseCode.QUERY_NOT_FOUND


def put_request(opaque: int) -> RemotingCommand:
    fields: dict[str, ExtValue] = {"namespace": "ns", "key": "k", "value": str(opaque)}
    return RemotingCommand(RequestCode.PUT_KV_CONFIG, fields, opaque=opaque)


def test_a_kv_change_is_answered_when_it_is_on_disk() -> None:
    namesrv = Namesrv()
    put = namesrv.handlers[RequestCode.PUT_KV_CONFIG]
    for opaque in (1, 2):
        assert put(namesrv.channel, put_request(opaque), Instant(0, 0)) is None
    oneway = put_request(3)
    oneway.flag = ONEWAY_FLAG
    put(namesrv.channel, oneway, Instant(0, 0))
    assert not namesrv.is_on_disk()
    unsaved = namesrv.processor.take_unsaved()
    assert not namesrv.processor.has_unsaved
    assert unsaved.data == b'{"configTable":{"ns":{"k":"3"}}}'
    assert namesrv.channel.sent == []
    namesrv.processor.saved(unsaved)
    assert namesrv.is_on_disk()
    assert [(it.opaque, it.code) for it in namesrv.channel.sent] == [(1, 0), (2, 0)]


def test_a_kv_change_that_does_not_reach_the_disk_is_no_success() -> None:
    namesrv = Namesrv()
    namesrv.handlers[RequestCode.PUT_KV_CONFIG](namesrv.channel, put_request(1), Instant(0, 0))
    namesrv.processor.take_unsaved().answer(failure="No space left on device")
    (response,) = namesrv.channel.sent
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "No space left" in str(response.remark)
    assert not namesrv.is_on_disk()


def test_only_so_many_kv_changes_may_wait_for_the_disk() -> None:
    namesrv = Namesrv()
    put = namesrv.handlers[RequestCode.PUT_KV_CONFIG]
    for opaque in range(UNSAVED_MAX):
        put(namesrv.channel, put_request(opaque), Instant(0, 0))
    assert namesrv.refusal(put_request(0)) == ResponseCode.SYSTEM_BUSY


def test_many_topics_take_turns_and_count_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "SMALL_BYTES", 100)
    monkeypatch.setattr(processor, "TOPICS_PER_TURN", 4)
    namesrv = Namesrv()
    request = register_request(table=topics(*(f"T{number}" for number in range(10))))
    handle = namesrv.processor.handlers()[RequestCode.REGISTER_BROKER]
    channel = FakeChannel()
    turns = 0
    while (response := handle(channel, request, at())) is None:
        assert channel.unfinished.pop() is request
        assert namesrv.processor.routes.topics() == []
        turns += 1
    assert turns > 2
    assert response.code == ResponseCode.SUCCESS
    assert len(namesrv.processor.routes.topics()) == 10


def test_a_wrong_name_in_a_later_turn_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "SMALL_BYTES", 100)
    monkeypatch.setattr(processor, "TOPICS_PER_TURN", 4)
    namesrv = Namesrv()
    request = register_request(table=topics(*(f"T{number}" for number in range(10)), "a b"))
    handle = namesrv.processor.handlers()[RequestCode.REGISTER_BROKER]
    channel = FakeChannel()
    with pytest.raises(CommandError):
        while handle(channel, request, at()) is None:
            channel.unfinished.clear()
    assert namesrv.processor.routes.topics() == []
    assert len(namesrv.processor.routes._live) == 0


@pytest.mark.parametrize(
    "body",
    [
        b"kvConfigPath=/etc/cron.d/x\n",
        b"configStorePath=/etc/cron.d/x\nproductEnvName=* * * * * root id\n",
        b"orderMessageEnable=true\n",
        b"",
    ],
)
def test_configuration_is_not_settable_over_the_wire(body: bytes) -> None:
    """Fault E2: through this request a peer made a name server write a file of its choice."""
    namesrv = Namesrv()
    before = namesrv.call(RequestCode.GET_NAMESRV_CONFIG).body_bytes()
    request = RemotingCommand(RequestCode.UPDATE_NAMESRV_CONFIG, {}, body)
    assert namesrv.refusal(request) == ResponseCode.NO_PERMISSION
    assert namesrv.call(RequestCode.GET_NAMESRV_CONFIG).body_bytes() == before
    assert namesrv.is_on_disk()


def test_a_password_is_not_told() -> None:
    namesrv = Namesrv(NamesrvConfig(tls_server_key_password="hush", tls_client_key_password="hush"))
    told = namesrv.call(RequestCode.GET_NAMESRV_CONFIG).body_bytes()
    assert b"hush" not in told
    assert b"tls.server.keyPassword=******\n" in told


def test_configuration_is_told_as_properties() -> None:
    namesrv = Namesrv(NamesrvConfig(listen_port=9999, kv_config_path="/a\nb"))
    lines = namesrv.call(RequestCode.GET_NAMESRV_CONFIG).body_bytes().decode().splitlines()
    assert "listenPort=9999" in lines
    assert "orderMessageEnable=false" in lines
    assert "kvConfigPath=/a\\nb" in lines

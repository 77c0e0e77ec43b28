"""Brokers and name servers over memory streams, on virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from support.handlers.namesrv import SLAVE, MemoryNamesrv, register_request, topics
from support.handlers.sending import FakeChannel
from trio.testing import MockClock, wait_all_tasks_blocked

from trioha.config import BrokerConfig
from trioha.errors import TriohaError
from trioha.remoting.channel import Channel, Instant
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Transport
from trioha.services.node.namesrv_registration import (
    BrokerIdentity,
    NamesrvRegistration,
    Refutation,
    namesrv_addresses,
)
from trioha.services.remoting.server import RemotingServer
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.bodies import DataVersion, TopicConfig
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.keyring import Keyring
from trioha.wire.remoting_command import RemotingCommand

IDENTITY = BrokerIdentity("C", "broker-a", 0, "10.0.0.1:10911", "10.0.0.1:10912")
SECRET = "a secret of tests"
REGISTER, UNREGISTER = RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER


class Broker:
    """A broker's registration with the name servers `ns0:9876`, `ns1:9876`, …"""

    def __init__(
        self,
        *namesrvs: MemoryNamesrv,
        identity: BrokerIdentity = IDENTITY,
        period_ms: int = 30_000,
        secret: str = "",
    ) -> None:
        self.events = RecordedEvents()
        self.version = DataVersion(1, 1)
        self.topics = topics("A", "B")
        self.masters: list[tuple[str, str]] = []
        self.hosts = {f"ns{index}": namesrv for index, namesrv in enumerate(namesrvs)}
        self.silent: set[str] = set()
        self.registration = NamesrvRegistration(
            BrokerConfig(
                namesrv_addr=";".join(f"{host}:9876" for host in self.hosts),
                register_name_server_period=period_ms,
            ),
            identity,
            lambda: (self.version, self.topics),
            Clock.virtual(),
            self.events,
            on_master=lambda address, ha_address: self.masters.append((address, ha_address)),
            connect=self.connect,
            keyring=Keyring(secret),
        )

    async def connect(self, host: str, port: int) -> Transport:
        if host in self.silent:
            await trio.sleep_forever()
        return await self.hosts[host].listener.connect(host, port)

    def change(self, topic: TopicConfig) -> None:
        self.version = self.version.next(2)
        self.topics[topic.topic_name] = topic
        self.registration.topics_changed(topic)


@asynccontextmanager
async def running(
    broker: Broker, prepare: Callable[[Broker], None] = lambda _: None
) -> AsyncIterator[Broker]:
    prepare(broker)
    async with trio.open_nursery() as nursery:
        for namesrv in broker.hosts.values():
            await nursery.start(namesrv.serve)
        async with trio.open_nursery() as inner:
            await inner.start(broker.registration.run)
            yield broker
            inner.cancel_scope.cancel()
        nursery.cancel_scope.cancel()


async def test_a_broker_registers_at_start_and_every_period(autojump_clock: MockClock) -> None:
    namesrv = MemoryNamesrv()
    async with running(Broker(namesrv)) as broker:
        assert namesrv.processor.routes.topics() == ["A", "B"]
        assert broker.registration.registered == ["ns0:9876"]
        await trio.sleep(95)
        assert namesrv.times == [0, 30, 60, 90]
        assert len(namesrv.listener.connects) == 1, "one connection serves them all"
        assert broker.events.of("namesrv_registered") == [{"namesrv": "ns0:9876"}]
        request = namesrv.requests[0]
        assert request.ext_fields["brokerAddr"] == "10.0.0.1:10911"
        assert request.ext_fields["haServerAddr"] == "10.0.0.1:10912"


@pytest.mark.parametrize(("configured_ms", "period_s"), [(1, 10), (45_000, 45), (600_000, 60)])
async def test_the_period_is_clamped_to_10_to_60_seconds(
    autojump_clock: MockClock, configured_ms: int, period_s: int
) -> None:
    namesrv = MemoryNamesrv()
    async with running(Broker(namesrv, period_ms=configured_ms)):
        await trio.sleep(period_s * 2.5)
        assert namesrv.times == [0, period_s, 2 * period_s]


async def test_a_changed_topic_is_registered_at_once_and_alone(autojump_clock: MockClock) -> None:
    namesrv = MemoryNamesrv()
    async with running(Broker(namesrv)) as broker:
        await trio.sleep(7)
        broker.change(TopicConfig("New"))
        await wait_all_tasks_blocked()
        assert trio.current_time() == 7
        assert "New" in namesrv.processor.routes.topics()
        last = namesrv.registrations()[-1]
        assert (list(last.topics), last.data_version) == (["New"], broker.version)
        await trio.sleep(24)
        assert namesrv.times == [0, 7, 30], "the period is not put off"
        assert list(namesrv.registrations()[-1].topics) == ["A", "B", "New"]


async def test_topics_that_change_together_go_out_together(autojump_clock: MockClock) -> None:
    namesrv = MemoryNamesrv()
    async with running(Broker(namesrv)) as broker:
        for index in range(100):
            broker.change(TopicConfig(f"T{index}"))
        await wait_all_tasks_blocked()
        assert len(namesrv.requests) == 2
        assert len(namesrv.processor.routes.topics()) == 102


async def test_a_change_of_everything_sends_the_whole_table(autojump_clock: MockClock) -> None:
    namesrv = MemoryNamesrv()
    async with running(Broker(namesrv)) as broker:
        broker.registration.identity = attrs.evolve(IDENTITY, broker_id=1)
        broker.registration.topics_changed()
        await wait_all_tasks_blocked()
        assert list(namesrv.registrations()[-1].topics) == ["A", "B"]
        assert namesrv.requests[-1].ext_str("brokerId") == "1"


async def test_a_dead_name_server_delays_nothing(autojump_clock: MockClock) -> None:
    silent, mute, refusing, good = (MemoryNamesrv() for _ in range(4))
    mute.mute = True
    refusing.listener.refusing = True
    broker = Broker(silent, mute, refusing, good)
    broker.silent.add("ns0")
    async with running(broker):
        assert good.times == [0]
        assert trio.current_time() == 1, "readiness waits for the dead ones a second at most"
        broker.change(TopicConfig("New"))
        await wait_all_tasks_blocked()
        assert good.times == [0, 1]
        await trio.sleep(60)
        assert good.times == [0, 1, 30, 60]
        assert broker.registration.registered == ["ns3:9876"]
        stopped_at = trio.current_time()
    assert trio.current_time() - stopped_at <= 1
    reasons = {
        (fields["namesrv"], fields["reason"]) for fields in broker.events.of("namesrv_failed")
    }
    assert reasons == {
        ("ns0:9876", "no connection within 6 s"),
        ("ns1:9876", "no answer within 6 s"),
        ("ns2:9876", "nobody listens"),
    }


async def test_a_failure_is_one_journal_line_however_often_it_repeats(
    autojump_clock: MockClock,
) -> None:
    namesrv = MemoryNamesrv()
    namesrv.listener.refusing = True
    async with running(Broker(namesrv)) as broker:
        await trio.sleep(300)
        assert broker.events.names() == ["namesrv_failed"]
        gaps = [
            later - earlier
            for earlier, later in zip(
                namesrv.listener.connects, namesrv.listener.connects[1:], strict=False
            )
        ]
        assert gaps[:6] == [1, 2, 4, 8, 16, 30]
        namesrv.listener.refusing = False
        await trio.sleep(31)
        assert broker.events.names() == ["namesrv_failed", "namesrv_registered"]


async def test_a_name_server_that_comes_back_gets_the_whole_table_within_a_second(
    autojump_clock: MockClock,
) -> None:
    namesrv = MemoryNamesrv()
    async with running(Broker(namesrv)) as broker:
        await trio.sleep(5)
        namesrv.drop_connections()
        await wait_all_tasks_blocked()
        assert namesrv.processor.routes.topics() == []
        broker.change(TopicConfig("New"))
        await trio.sleep(1.1)
        assert list(namesrv.registrations()[-1].topics) == ["A", "B", "New"]
        assert len(namesrv.processor.routes.topics()) == 3
        assert broker.events.names() == [
            "namesrv_registered",
            "namesrv_failed",
            "namesrv_registered",
        ]


async def test_a_name_server_that_is_back_hears_at_once_what_the_node_has_become(
    autojump_clock: MockClock,
) -> None:
    namesrv = MemoryNamesrv()
    async with running(Broker(namesrv)) as broker:
        broker.registration.connect = refused
        namesrv.drop_connections()
        await trio.sleep(20)  # the pauses between two attempts have grown
        assert broker.registration.registered == []
        broker.registration.connect = broker.connect
        broker.registration.register_as(attrs.evolve(IDENTITY, epoch=7))
        await trio.sleep(0.01)
        assert broker.registration.registered == ["ns0:9876"]


async def refused(host: str, port: int) -> Transport:
    raise ConnectionRefusedError(host)


async def test_what_a_name_server_missed_is_sent_again_whole(autojump_clock: MockClock) -> None:
    namesrv = MemoryNamesrv()
    async with running(Broker(namesrv)) as broker:
        namesrv.mute = True
        broker.change(TopicConfig("Lost"))
        await trio.sleep(3)
        broker.change(TopicConfig("Later"))
        await trio.sleep(2.5)
        namesrv.mute = False
        await trio.sleep(1)
        assert sorted(namesrv.processor.routes.topics()) == ["A", "B", "Later", "Lost"]
        assert len(namesrv.listener.connects) == 1, "closing would be taken for our death"


async def test_a_connection_that_answers_nothing_twice_is_given_up(
    autojump_clock: MockClock,
) -> None:
    namesrv = MemoryNamesrv()
    async with running(Broker(namesrv)):
        namesrv.mute = True
        # Not renewed at 30 s, asked again 1 s after the first silence, given up after the second.
        await trio.sleep(30 + 6 + 1 + 6 + 2.1)
        assert namesrv.listener.connects == [0, 45]


async def test_a_refusal_is_named_and_tried_again(autojump_clock: MockClock) -> None:
    namesrv = MemoryNamesrv()
    identity = attrs.evolve(IDENTITY, broker_name="x" * 300)
    async with running(Broker(namesrv, identity=identity)) as broker:
        (failure,) = broker.events.of("namesrv_failed")
        assert str(failure["reason"]).startswith("refused with code 1")
        await trio.sleep(300)
        assert 8 < len(namesrv.requests) < 20


async def test_leaving_unregisters_everywhere(autojump_clock: MockClock) -> None:
    namesrvs = MemoryNamesrv(), MemoryNamesrv()
    async with running(Broker(*namesrvs)) as broker:
        pass
    for namesrv in namesrvs:
        assert namesrv.codes() == [REGISTER, UNREGISTER]
        assert namesrv.events.of("broker_unregistered")[0]["reason"] == "asked"
    assert len(broker.events.of("namesrv_unregistered")) == 2
    assert broker.registration.registered == []


async def test_a_slave_learns_its_master_once(autojump_clock: MockClock) -> None:
    namesrv = MemoryNamesrv()
    identity = attrs.evolve(IDENTITY, broker_id=1, address=SLAVE.address)
    async with running(Broker(namesrv, identity=identity)) as broker:
        assert broker.masters == []
        announce_master(namesrv, "10.0.0.1:10911")
        await trio.sleep(65)
        assert broker.masters == [("10.0.0.1:10911", "10.0.0.1:10912")]
        announce_master(namesrv, "10.0.0.7:10911")
        await trio.sleep(31)
        assert broker.masters[1:] == [("10.0.0.7:10911", "10.0.0.1:10912")]


async def test_a_name_server_that_says_what_it_said_before_sends_no_slave_back(
    autojump_clock: MockClock,
) -> None:
    """A slave followed the old master again, which was none: its question had crossed the new
    master's own word."""
    namesrv = MemoryNamesrv()
    identity = attrs.evolve(IDENTITY, broker_id=1, address=SLAVE.address)
    old = ("10.0.0.1:10911", "10.0.0.1:10912")
    announce_master(namesrv, old[0])
    async with running(Broker(namesrv, identity=identity)) as broker:
        await trio.sleep(1)
        assert broker.masters == [old]
        broker.registration.ask_for_master()
        broker.registration.master_told()
        await trio.sleep(65)
        assert broker.masters == [old]
        # The new master cannot be followed either: any answer helps.
        broker.registration.ask_for_master()
        await trio.sleep(1)
        assert broker.masters == [old, old]


async def test_a_slave_that_is_told_of_no_master_asks_again_soon(
    autojump_clock: MockClock,
) -> None:
    namesrv = MemoryNamesrv()
    identity = attrs.evolve(IDENTITY, broker_id=1, address=SLAVE.address)
    async with running(Broker(namesrv, identity=identity)) as broker:
        await trio.sleep(5)
        announce_master(namesrv, "10.0.0.1:10911")
        await trio.sleep(40)
        assert namesrv.times == [0, 2, 4, 6, 36]
        assert broker.masters == [("10.0.0.1:10911", "10.0.0.1:10912")]


async def test_a_master_that_was_fenced_asks_again_soon_who_is_master(
    autojump_clock: MockClock,
) -> None:
    """It keeps its broker id until it follows: else 30 s without a slave for the new master."""
    namesrv = MemoryNamesrv()
    identity = attrs.evolve(IDENTITY, epoch=1, epoch_nonce="a1" * 8, in_doubt=True)
    async with running(Broker(namesrv, identity=identity)):
        await trio.sleep(5)
        assert namesrv.times == [0, 2, 4]


async def test_the_first_name_server_that_knows_a_master_is_believed(
    autojump_clock: MockClock,
) -> None:
    first, second = MemoryNamesrv(), MemoryNamesrv()
    announce_master(first, "10.0.0.1:10911")
    announce_master(second, "10.0.0.2:10911")
    identity = attrs.evolve(IDENTITY, broker_id=1, address="10.0.0.5:10911")
    async with running(Broker(first, second, identity=identity)) as broker:
        await trio.sleep(100)
        assert broker.masters[-1][0] == "10.0.0.1:10911"
        assert len(broker.masters) <= 2, "they do not take turns"
        first.listener.refusing = True
        first.drop_connections()
        await trio.sleep(31)
        assert broker.masters[-1][0] == "10.0.0.2:10911"


def announce_master(namesrv: MemoryNamesrv, address: str) -> None:
    """Register another broker as master, on a connection of its own."""
    master = attrs.evolve(SLAVE, broker_id=0, address=address)
    handler = namesrv.processor.handlers()[REGISTER]
    handler(FakeChannel(), register_request(master), Instant(0, 0))


async def test_a_broker_that_may_not_be_written_says_so_of_each_topic(
    autojump_clock: MockClock,
) -> None:
    namesrv = MemoryNamesrv()
    async with running(Broker(namesrv, identity=attrs.evolve(IDENTITY, permission=4))):
        assert [topic.perm for topic in namesrv.registrations()[0].topics.values()] == [4, 4]


async def test_a_large_table_goes_out_compressed(mock_clock: MockClock) -> None:
    namesrv = MemoryNamesrv()
    broker = Broker(namesrv)
    broker.topics = topics(*(f"T{index}" for index in range(12_000)))
    async with running(broker):
        while not broker.registration.registered:
            await trio.lowlevel.checkpoint()
        assert len(namesrv.processor.routes.topics()) == 12_000
        assert len(namesrv.requests[0].body_bytes()) < 200_000


async def test_without_name_servers_there_is_nothing_to_do(autojump_clock: MockClock) -> None:
    async with running(Broker()) as broker:
        await trio.sleep(100)
        assert broker.events.names() == []


def test_an_identity_is_told_by_the_configuration() -> None:
    config = BrokerConfig(
        broker_name="b", broker_ip1="1.2.3.4", listen_port=1, ha_listen_port=2, broker_permission=4
    )
    assert BrokerIdentity.of(config) == BrokerIdentity(
        "DefaultCluster", "b", 0, "1.2.3.4:1", "1.2.3.4:2", 4
    )


def test_lists_of_name_servers_are_read_leniently() -> None:
    assert namesrv_addresses(" a:1; b:2 ;;a:1,c:3") == ["a:1", "b:2", "c:3"]
    assert namesrv_addresses("") == []


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(TriohaError, match="nonsense"):
        NamesrvRegistration(
            BrokerConfig(namesrv_addr="nonsense"),
            IDENTITY,
            lambda: (DataVersion(), {}),
            Clock.virtual(),
            RecordedEvents(),
        )


async def test_a_name_server_whose_answer_is_no_number_is_one_line_and_ends_no_broker(
    autojump_clock: MockClock,
) -> None:
    namesrv = MemoryNamesrv()

    def lie(channel: Channel, request: RemotingCommand, instant: Instant) -> RemotingCommand:
        return request.response(ResponseCode.FENCED_MASTER_EPOCH, "no", {"epoch": "a lot"})

    namesrv.server = RemotingServer(lie, Clock.virtual(), namesrv.events)
    async with running(Broker(namesrv)) as broker:
        await trio.sleep(300)
        (line,) = broker.events.of("namesrv_failed")
        assert "field epoch is not a number" in str(line["reason"])


SUCCESSOR = attrs.evolve(
    IDENTITY,
    address="10.0.0.2:10911",
    ha_address="10.0.0.2:10912",
    epoch=3,
    epoch_nonce="aa" * 8,
)


@pytest.mark.parametrize("secret", ["", SECRET])
async def test_a_claim_carries_its_epoch_and_hears_who_stands_against_it(
    autojump_clock: MockClock, secret: str
) -> None:
    namesrv = MemoryNamesrv(secret)
    claim = attrs.evolve(IDENTITY, epoch=2, epoch_nonce="00ff")
    refuted: list[Refutation] = []

    def listen(broker: Broker) -> None:
        broker.registration.on_refuted = refuted.append

    async with running(Broker(namesrv, identity=claim, secret=secret), listen) as broker:
        fields = namesrv.requests[0].ext_fields
        assert (fields["epoch"], fields["epochNonce"]) == ("2", "00ff")
        async with running(Broker(namesrv, identity=SUCCESSOR, secret=secret)):
            broker.registration.topics_changed()
            await wait_all_tasks_blocked()
            expected = Refutation("ns0:9876", 3, b"\xaa" * 8, "10.0.0.2:10911", "10.0.0.2:10912")
            assert refuted == [expected]
            assert broker.masters[-1] == ("10.0.0.2:10911", "10.0.0.2:10912")
            assert broker.registration.registered == []


async def test_a_name_server_without_our_secret_fences_nobody(autojump_clock: MockClock) -> None:
    namesrv = MemoryNamesrv()  # an impostor asks for no proof, and has none
    claim = attrs.evolve(IDENTITY, epoch=2, epoch_nonce="00ff")
    refuted: list[Refutation] = []

    def listen(broker: Broker) -> None:
        broker.registration.on_refuted = refuted.append

    async with running(Broker(namesrv, identity=claim, secret=SECRET), listen) as broker:
        async with running(Broker(namesrv, identity=SUCCESSOR)):
            broker.registration.topics_changed()
            await wait_all_tasks_blocked()
            assert broker.registration.registered == []
        assert refuted == []
        assert broker.masters == []
        assert "without proof" in str(broker.events.of("namesrv_failed")[-1]["reason"])


@pytest.mark.parametrize(("secret", "remembers"), [(SECRET, True), ("", False)])
async def test_only_a_name_server_with_our_secret_remembers_our_claim(
    autojump_clock: MockClock, secret: str, remembers: bool
) -> None:
    claim = attrs.evolve(IDENTITY, epoch=2, epoch_nonce="00ff")
    async with running(Broker(MemoryNamesrv(secret), identity=claim, secret=SECRET)) as broker:
        await trio.sleep(5)
        assert broker.registration.remembers_claim_before(trio.current_time()) is remembers


async def test_a_slaves_registration_claims_nothing(autojump_clock: MockClock) -> None:
    namesrv = MemoryNamesrv()
    identity = attrs.evolve(IDENTITY, broker_id=1, epoch=2, epoch_nonce="aa")
    async with running(Broker(namesrv, identity=identity)):
        assert "epoch" not in namesrv.requests[0].ext_fields

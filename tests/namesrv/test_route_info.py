from __future__ import annotations

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.handlers.namesrv import MASTER, SLAVE, topics
from support.handlers.sending import FakeChannel

from trioha.errors import CommandError
from trioha.namesrv.route_info import (
    BrokerAddress,
    MasterAddresses,
    Registered,
    RouteInfoManager,
    queues_of,
)
from trioha.wire.bodies import DataVersion, TopicConfig
from trioha.wire.route import QueueData

V1 = DataVersion(1000, 1)
V2 = DataVersion(2000, 2)
OTHER = BrokerAddress("C", "broker-b", 0, "10.0.0.3:10911")


class Registry:
    """A manager and the connection each address registers through."""

    def __init__(self, routes: RouteInfoManager | None = None) -> None:
        self.routes = routes or RouteInfoManager()
        self.channels: dict[str, FakeChannel] = {}

    def register(
        self,
        broker: BrokerAddress,
        table: dict[str, TopicConfig] | None = None,
        version: DataVersion = V1,
        now_ms: int = 0,
    ) -> Registered:
        channel = self.channels.setdefault(broker.address, FakeChannel())
        table = topics("T") if table is None else table
        ha = broker.address.replace(":10911", ":10912")
        queues = {name: queues_of(broker.broker_name, topic) for name, topic in table.items()}
        return self.routes.register(broker, ha, version, queues, channel, now_ms)

    def deadline_ms(self) -> int | None:
        return self.routes.next_deadline_ms

    def close(self, broker: BrokerAddress) -> list[BrokerAddress]:
        return self.routes.channel_closed(self.channels.pop(broker.address))

    def addresses(self, topic: str) -> dict[str, dict[int, str]]:
        route = self.routes.pick_route(topic)
        if route is None:
            return {}
        return {it.broker_name: dict(it.broker_addrs) for it in route.broker_datas}

    def queues(self, topic: str) -> list[int]:
        route = self.routes.pick_route(topic)
        return [] if route is None else [queue.write_queue_nums for queue in route.queue_datas]

    def perms(self, topic: str) -> list[int]:
        route = self.routes.pick_route(topic)
        return [] if route is None else [queue.perm for queue in route.queue_datas]


def test_a_registered_topic_has_a_route() -> None:
    registry = Registry()
    assert registry.register(MASTER) == Registered(is_new=True, master=None)
    route = registry.routes.pick_route("T")
    assert route is not None
    assert route.broker_datas[0].cluster == "C"
    assert [(it.broker_name, it.read_queue_nums) for it in route.queue_datas] == [("broker-a", 4)]
    assert registry.routes.pick_route("Missing") is None


def test_a_second_registration_is_no_news() -> None:
    registry = Registry()
    registry.register(MASTER)
    assert not registry.register(MASTER, now_ms=30_000).is_new


def test_a_slave_is_told_its_master_and_its_topics_are_ignored() -> None:
    registry = Registry()
    assert registry.register(SLAVE, topics("FromSlave")).master is None
    assert registry.addresses("FromSlave") == {}
    registry.register(MASTER)
    assert registry.register(SLAVE).master == MasterAddresses("10.0.0.1:10911", "10.0.0.1:10912")
    assert registry.addresses("T") == {"broker-a": {0: MASTER.address, 1: SLAVE.address}}


def test_a_registration_adds_and_changes_topics_but_never_removes_any() -> None:
    registry = Registry()
    registry.register(MASTER, topics("A", "B"))
    registry.register(MASTER, topics("C"), V2)
    assert sorted(registry.routes.topics()) == ["A", "B", "C"]
    registry.register(MASTER, topics("A", queues=9), DataVersion(2000, 3))
    route = registry.routes.pick_route("A")
    assert route is not None
    assert route.queue_datas[0].write_queue_nums == 9


def test_known_topics_change_only_when_the_data_version_differs() -> None:
    """Gotcha 28: both numbers count."""
    registry = Registry()
    registry.register(MASTER, topics("A"))
    registry.register(MASTER, topics("A", queues=8))
    assert registry.queues("A") == [4]
    registry.register(MASTER, topics("A", queues=8), DataVersion(V1.timestamp, V1.counter + 1))
    assert registry.queues("A") == [8]
    newest = DataVersion(V1.timestamp + 1, V1.counter + 1)
    registry.register(MASTER, topics("A", queues=16), newest)
    assert registry.queues("A") == [16]


def test_new_topics_are_added_under_an_unchanged_data_version() -> None:
    """A broker of RocketMQ 5.3 may register one topic first, then all under the same version."""
    registry = Registry()
    registry.register(MASTER, topics("A"))
    registry.register(MASTER, topics("A", "B", queues=8))
    assert (registry.queues("A"), registry.queues("B")) == ([4], [8])
    registry.register(SLAVE, topics("C"))
    registry.register(SLAVE, topics("C", "D"))
    assert registry.addresses("D") == {}


def test_closing_the_connection_removes_the_broker_at_once() -> None:
    registry = Registry()
    registry.register(MASTER)
    registry.register(OTHER, topics("T", "U"))
    assert registry.close(MASTER) == [MASTER]
    assert registry.addresses("T") == {"broker-b": {0: OTHER.address}}
    assert registry.close(OTHER) == [OTHER]
    assert registry.routes.topics() == []
    assert registry.routes.cluster_info().cluster_addr_table == {}


def test_the_slave_keeps_the_route_when_its_master_is_gone() -> None:
    registry = Registry()
    registry.register(MASTER)
    registry.register(SLAVE)
    registry.close(MASTER)
    assert registry.addresses("T") == {"broker-a": {1: SLAVE.address}}
    registry.close(SLAVE)
    assert registry.addresses("T") == {}


def test_an_old_connection_does_not_take_a_broker_that_came_back_on_a_new_one() -> None:
    registry = Registry()
    registry.register(MASTER)
    old = registry.channels.pop(MASTER.address)
    registry.register(MASTER)
    assert registry.routes.channel_closed(old) == []
    assert registry.addresses("T") == {"broker-a": {0: MASTER.address}}


def test_a_connection_that_never_registered_closes_quietly() -> None:
    assert RouteInfoManager().channel_closed(FakeChannel()) == []


def test_a_silent_broker_expires_after_120_seconds() -> None:
    registry = Registry()
    registry.register(MASTER, now_ms=1000)
    assert registry.deadline_ms() == 121_001
    assert registry.routes.expire(121_000) == []
    ((broker, channel),) = registry.routes.expire(121_001)
    assert (broker, channel) == (MASTER, registry.channels[MASTER.address])
    assert registry.deadline_ms() is None
    assert registry.addresses("T") == {}
    assert registry.close(MASTER) == []


def test_only_those_silent_for_longest_expire() -> None:
    registry = Registry()
    registry.register(MASTER, now_ms=0)
    registry.register(SLAVE, now_ms=10)
    registry.register(MASTER, now_ms=60_000)
    assert registry.deadline_ms() == 120_011
    assert [broker for broker, _ in registry.routes.expire(120_011)] == [SLAVE]
    assert registry.addresses("T") == {"broker-a": {0: MASTER.address}}


def test_asking_with_an_unchanged_data_version_is_a_sign_of_life() -> None:
    registry = Registry()
    assert registry.routes.query_data_version(MASTER, V1, 0) == (True, None)
    registry.register(MASTER, now_ms=0)
    assert registry.routes.query_data_version(MASTER, V1, 60_000) == (False, V1)
    assert registry.deadline_ms() == 180_001
    assert registry.routes.query_data_version(MASTER, V2, 90_000) == (True, V1)
    assert registry.deadline_ms() == 180_001


def test_unregistering_removes_the_broker() -> None:
    registry = Registry()
    registry.register(MASTER)
    assert registry.routes.unregister(MASTER)
    assert registry.addresses("T") == {}
    assert not registry.routes.unregister(MASTER)


def test_a_broker_unregisters_only_under_the_id_that_it_has_now() -> None:
    """A goodbye that was sent before a role switch arrives after it."""
    registry = Registry()
    registry.register(MASTER)
    for other in (
        attrs.evolve(MASTER, broker_id=1),
        attrs.evolve(MASTER, broker_name="broker-z"),
        attrs.evolve(MASTER, address="10.0.0.9:10911"),
    ):
        assert not registry.routes.unregister(other)
        assert registry.addresses("T") == {"broker-a": {0: MASTER.address}}


def test_a_deposed_master_does_not_take_its_successor_with_it() -> None:
    """Fault D4: two brokers as id 0; the one that came last stands."""
    registry = Registry()
    successor = attrs.evolve(MASTER, address="10.0.0.9:10911")
    registry.register(MASTER)
    registry.register(successor)
    assert registry.addresses("T") == {"broker-a": {0: successor.address}}
    registry.routes.unregister(MASTER)
    assert registry.addresses("T") == {"broker-a": {0: successor.address}}


def test_a_master_that_regains_its_id_brings_its_topics_again() -> None:
    registry = Registry()
    successor = attrs.evolve(MASTER, address="10.0.0.9:10911")
    registry.register(MASTER)
    registry.register(successor)
    registry.routes.unregister(successor)
    assert registry.addresses("T") == {}
    registry.register(MASTER)
    assert registry.addresses("T") == {"broker-a": {0: MASTER.address}}


def test_a_slave_that_becomes_master_moves_to_id_0() -> None:
    registry = Registry()
    registry.register(MASTER)
    registry.register(SLAVE)
    registry.close(MASTER)
    promoted = attrs.evolve(SLAVE, broker_id=0)
    assert registry.register(promoted, topics("T", "New")).is_new
    assert registry.addresses("T") == {"broker-a": {0: SLAVE.address}}
    assert registry.addresses("New") == {"broker-a": {0: SLAVE.address}}


def test_a_lone_master_that_becomes_slave_keeps_its_queues() -> None:
    registry = Registry()
    registry.register(MASTER)
    registry.register(attrs.evolve(MASTER, broker_id=1))
    assert registry.addresses("T") == {"broker-a": {1: MASTER.address}}


def test_an_address_under_a_new_name_leaves_the_old_one() -> None:
    registry = Registry()
    registry.register(MASTER)
    registry.register(attrs.evolve(MASTER, broker_name="renamed", cluster="D"))
    assert registry.addresses("T") == {"renamed": {0: MASTER.address}}
    assert registry.routes.cluster_info().cluster_addr_table == {"D": ("renamed",)}


def test_write_permission_is_wiped_until_the_next_data_version() -> None:
    """Gotcha 27."""
    registry = Registry()
    registry.register(MASTER, topics("A", "B"))
    assert registry.routes.wipe_write_perm("broker-a") == 2
    assert registry.perms("A") == [4]
    registry.register(MASTER, topics("A", "B"))
    assert registry.perms("A") == [4]
    registry.register(MASTER, topics("A", "B"), V2)
    assert registry.perms("A") == [6]
    registry.routes.wipe_write_perm("broker-a")
    assert registry.routes.add_write_perm("broker-a") == 2
    assert registry.perms("B") == [6]
    assert registry.routes.wipe_write_perm("unknown") == 0


def test_topics_are_listed_by_cluster_and_by_system() -> None:
    registry = Registry()
    registry.register(MASTER, topics("A", "B"))
    registry.register(attrs.evolve(OTHER, cluster="D"), topics("B", "E"))
    assert sorted(registry.routes.topics_of_cluster("C")) == ["A", "B"]
    assert sorted(registry.routes.topics_of_cluster("D")) == ["B", "E"]
    assert registry.routes.topics_of_cluster("none") == []
    names, address = registry.routes.system_topics()
    assert names == ["C", "broker-a", "D", "broker-b"]
    assert address == MASTER.address


def test_unit_topics_are_listed_by_their_flags() -> None:
    registry = Registry()
    flags = {"plain": 0, "unit": 1, "sub": 2, "both": 3}
    table = {name: TopicConfig(name, topic_sys_flag=flag) for name, flag in flags.items()}
    registry.register(MASTER, table)
    assert sorted(registry.routes.unit_topics()) == ["both", "unit"]
    assert sorted(registry.routes.unit_sub_topics()) == ["both", "sub"]
    assert registry.routes.unit_sub_ununit_topics() == ["sub"]


def test_a_topic_is_deleted_everywhere_or_in_one_cluster() -> None:
    registry = Registry()
    registry.register(MASTER)
    registry.register(attrs.evolve(OTHER, cluster="D"))
    registry.routes.delete_topic("T", "D")
    assert list(registry.addresses("T")) == ["broker-a"]
    registry.routes.delete_topic("T")
    assert registry.addresses("T") == {}
    registry.routes.delete_topic("Missing")


@pytest.mark.parametrize(
    "broker",
    [
        attrs.evolve(MASTER, broker_name=""),
        attrs.evolve(MASTER, address=""),
        attrs.evolve(MASTER, cluster="c" * 256),
        attrs.evolve(MASTER, broker_id=-1),
    ],
)
def test_a_broker_without_proper_names_is_refused(broker: BrokerAddress) -> None:
    registry = Registry()
    with pytest.raises(CommandError):
        registry.register(broker)
    assert len(registry.routes._live) == 0


def test_what_peers_can_grow_is_limited() -> None:
    registry = Registry(RouteInfoManager(addresses_max=1, topics_per_broker_max=2))
    with pytest.raises(CommandError, match="more than 2 topics"):
        registry.register(MASTER, topics("A", "B", "C"))
    registry.register(MASTER, topics("A", "B"))
    with pytest.raises(CommandError, match="more than 2 topics"):
        registry.register(MASTER, topics("D"), V2)
    registry.register(MASTER, topics("B"), V2)
    with pytest.raises(CommandError, match="1 broker addresses"):
        registry.register(OTHER)
    with pytest.raises(CommandError, match="longer than 255"):
        registry.register(MASTER, topics("x" * 256))
    assert sorted(registry.routes.topics()) == ["A", "B"]


def test_all_brokers_together_have_a_bounded_number_of_topics() -> None:
    registry = Registry(RouteInfoManager(queue_entries_max=3))
    registry.register(MASTER, topics("A", "B"))
    with pytest.raises(CommandError, match="together have more than 3 topics"):
        registry.register(OTHER, topics("A", "C"))
    registry.register(OTHER, topics("A"))
    registry.register(MASTER, topics("A", "B"), V2)


NAMES = st.sampled_from(["a", "b"])


class RouteMachine(RuleBasedStateMachine):
    """Random comings and goings of four addresses; the tables must always agree."""

    def __init__(self) -> None:
        super().__init__()
        self.routes = RouteInfoManager()
        self.channels = [FakeChannel() for _ in range(3)]
        self.now_ms = 0

    @rule(
        name=NAMES,
        cluster=st.sampled_from(["C", "D"]),
        broker_id=st.integers(0, 1),
        address=st.integers(1, 4),
        channel=st.integers(0, 2),
        version=st.integers(1, 2),
        table=st.sets(st.sampled_from("TUV")),
    )
    def register(
        self,
        name: str,
        cluster: str,
        broker_id: int,
        address: int,
        channel: int,
        version: int,
        table: set[str],
    ) -> None:
        broker = BrokerAddress(cluster, name, broker_id, f"h:{address}")
        self.routes.register(
            broker,
            "h:9",
            DataVersion(1, version),
            {topic: QueueData(name, 4, 4, 6) for topic in table},
            self.channels[channel],
            self.now_ms,
        )

    @rule(name=NAMES, broker_id=st.integers(0, 1), address=st.integers(1, 4))
    def unregister(self, name: str, broker_id: int, address: int) -> None:
        self.routes.unregister(BrokerAddress("C", name, broker_id, f"h:{address}"))

    @rule(channel=st.integers(0, 2))
    def close(self, channel: int) -> None:
        self.routes.channel_closed(self.channels[channel])

    @rule(topic=st.sampled_from("TUV"), cluster=st.sampled_from(["", "C"]))
    def delete(self, topic: str, cluster: str) -> None:
        self.routes.delete_topic(topic, cluster)

    @rule(name=NAMES)
    def wipe(self, name: str) -> None:
        self.routes.wipe_write_perm(name)

    @rule(passed_ms=st.integers(0, 100_000))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self.routes.expire(self.now_ms)
        deadline_ms = self.routes.next_deadline_ms
        assert deadline_ms is None or deadline_ms > self.now_ms

    @invariant()
    def tables_agree(self) -> None:
        routes = self.routes
        listed = {
            (name, broker_id): address
            for name, broker in routes._brokers.items()
            for broker_id, address in broker.addresses.items()
        }
        assert len(set(listed.values())) == len(listed), "an address belongs to one broker"
        for (name, broker_id), address in listed.items():
            live = routes._live[address].broker
            assert (live.broker_name, live.broker_id) == (name, broker_id)
        assert all(broker.addresses for broker in routes._brokers.values())
        linked = [address for group in routes._by_channel.values() for address in group]
        assert sorted(linked) == sorted(routes._live)
        held = {(topic, name) for topic, queues in routes._topics.items() for name in queues}
        assert held == {(t, b.name) for b in routes._brokers.values() for t in b.topics}
        assert all(routes._topics.values())
        seen = [live.last_seen_ms for live in routes._live.values()]
        assert seen == sorted(seen)
        for topic in "TUV":
            routes.pick_route(topic)


TestRouteMachine = RouteMachine.TestCase
TestRouteMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)

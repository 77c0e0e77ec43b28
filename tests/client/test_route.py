"""Routes as producers and consumers read them."""

from __future__ import annotations

import random

from trioha.client.message import MessageQueue
from trioha.client.route import QueueSelector, TopicRoute, queue_for_key
from trioha.wire.route import BrokerData, QueueData, TopicRouteData


def data(**brokers: dict[int, str]) -> TopicRouteData:
    return TopicRouteData(
        [BrokerData("C", name, nodes) for name, nodes in brokers.items()],
        [QueueData(name, 4, 2, 6) for name in sorted(brokers, reverse=True)],
    )


def route(**brokers: dict[int, str]) -> TopicRoute:
    return TopicRoute.of("T", data(**brokers))


def test_writes_and_reads_have_their_own_numbers_of_queues() -> None:
    both = route(a={0: "a0"})
    assert [queue.queue_id for queue in both.write_queues] == [0, 1]
    assert [queue.queue_id for queue in both.read_queues] == [0, 1, 2, 3]


def test_queues_come_by_broker_name_whatever_order_the_name_server_gives() -> None:
    names = [queue.broker_name for queue in route(b={0: "b0"}, a={0: "a0"}).write_queues]
    assert names == ["a", "a", "b", "b"]


def test_a_broker_without_its_master_is_read_but_not_written() -> None:
    slave_only = route(a={1: "a1"})
    assert not slave_only.write_queues
    assert len(slave_only.read_queues) == 4
    assert slave_only.master("a") is None


def test_permission_bits_decide() -> None:
    brokers = [BrokerData("C", "a", {0: "a0"})]
    read_only = TopicRoute.of("T", TopicRouteData(brokers, [QueueData("a", 2, 2, 4)]))
    write_only = TopicRoute.of("T", TopicRouteData(brokers, [QueueData("a", 2, 2, 2)]))
    assert (len(read_only.write_queues), len(read_only.read_queues)) == (0, 2)
    assert (len(write_only.write_queues), len(write_only.read_queues)) == (2, 0)


def test_queues_of_a_broker_that_is_gone_are_left_out() -> None:
    gone = TopicRouteData([], [QueueData("a", 2, 2, 6)])
    assert not TopicRoute.of("T", gone).read_queues


def test_a_borrowed_route_is_cut_to_the_wanted_queues() -> None:
    assert len(TopicRoute.of("T", data(a={0: "a0"}), queue_nums_max=1).write_queues) == 1


def test_reading_falls_back_from_the_wanted_node_to_the_next_and_to_any() -> None:
    nodes = route(a={0: "a0", 2: "a2"})
    assert nodes.reader("a", 0) == (0, "a0")
    assert nodes.reader("a", 1) == (2, "a2")
    assert nodes.reader("a", 5) == (0, "a0")
    assert nodes.reader("b", 0) is None


def test_queues_take_turns() -> None:
    selector, target = QueueSelector(random.Random(1)), route(a={0: "a0"}, b={0: "b0"})
    picked = [selector.select(target) for _ in range(8)]
    assert picked[:4] == picked[4:]
    assert len(set(picked)) == 4


def test_brokers_to_avoid_are_avoided_while_there_are_others() -> None:
    selector, target = QueueSelector(random.Random(1)), route(a={0: "a0"}, b={0: "b0"})
    picked = {selector.select(target, {"a"}) for _ in range(8)}
    assert {queue.broker_name for queue in picked if queue} == {"b"}
    assert selector.select(target, {"a", "b"}) is not None


def test_without_queues_nothing_is_selected() -> None:
    assert QueueSelector(random.Random(1)).select(route(a={1: "a1"})) is None
    assert queue_for_key(route(a={1: "a1"}), "k") is None


def test_a_sharding_key_picks_what_java_picks() -> None:
    # "order-7".hashCode() is -1207111304: Java takes the absolute value of the remainder.
    target = route(a={0: "a0"}, b={0: "b0"})
    expected = target.write_queues[1207111304 % 4]
    assert queue_for_key(target, "order-7") == expected


def test_every_node_is_greeted_but_only_masters_are_sent_to() -> None:
    target = route(a={0: "a0", 1: "a1"}, b={1: "b1"})
    assert target.addresses() == {"a0", "a1", "b1"}
    assert target.masters() == {"a0"}


def test_routes_are_equal_when_nothing_changed() -> None:
    assert route(a={0: "a0"}) == route(a={0: "a0"})
    assert route(a={0: "a0"}) != route(a={0: "a9"})
    assert MessageQueue("T", "a", 0) in route(a={0: "a0"}).read_queues

"""What a node tells Prometheus, made from its tables when it is asked.

Nothing is counted for this page alone: a node that nobody scrapes does no work for it. Names and
labels are RocketMQ 5's where the meaning is the same, so that dashboards carry over; what it has
not, replication above all, begins with ``trioha_``. Units are bytes and seconds, counters end in
``_total``, and ages are given as points in time for PromQL to subtract.

A topic's messages are counted from its queues' ends, so that counter survives restarts and grows on
a slave, too. prometheus_client is imported with the first scrape: it costs 60 ms.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from trioha import __version__
from trioha.config import BrokerRole
from trioha.namesrv.route_info import MASTER_ID
from trioha.services.admin.http import OnGet, Page
from trioha.services.admin.metrics_families import Families, Sample, one
from trioha.wire.names import RETRY_PREFIX
from trioha.wire.route import BrokerData

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from trioha.namesrv.processor import NamesrvProcessor
    from trioha.services.admin.event_counts import EventCounts
    from trioha.services.node.broker_node import BrokerNode


def broker_metrics(node: BrokerNode) -> OnGet:
    """The /metrics page of a broker."""
    return lambda accept: _page(_broker_families(node), accept)


def namesrv_metrics(processor: NamesrvProcessor, counts: EventCounts) -> OnGet:
    """The /metrics page of a name server."""
    return lambda accept: _page(_namesrv_families(processor, counts), accept)


def _page(families: Iterable[Metric], accept: str) -> Page:
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder
    from prometheus_client.registry import Collector

    class Once(Collector):
        def collect(self) -> Iterable[Metric]:
            return families

        def describe(self) -> Iterable[Metric]:
            return ()  # asked at registration; the families are made once, for the answer

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Once())
    encode, content_type = choose_encoder(accept)
    return Page(encode(registry), content_type)


def _build_info(families: Families) -> Metric:
    return families.gauge(
        "trioha_build_info",
        "Always 1; which trioha on which Python.",
        [((__version__, platform.python_version()), 1.0)],
        "version",
        "python",
    )


def _broker_families(node: BrokerNode) -> Iterator[Metric]:
    config = node.config
    families = Families(
        cluster=config.broker_cluster_name,
        node_type="broker",
        node_id=config.broker_name,
        broker_id=str(config.broker_id),
    )
    yield _build_info(families)
    yield from _store_families(node, families)
    yield from _traffic_families(node, families)
    yield from _client_families(node, families)
    yield from _registration_families(node, families)
    yield from node.replication_families(families)
    yield _events(families, node.event_counts)


def _store_families(node: BrokerNode, families: Families) -> Iterator[Metric]:
    store = node.store.statistics()
    gauge = families.gauge
    for name, offset in (
        ("min", store.min_phy_offset),
        ("max", store.max_phy_offset),
        ("flushed", store.flushed_offset),
        ("dispatched", store.dispatched_offset),
    ):
        text = f"The commitlog's {name} offset."
        yield gauge(f"trioha_commitlog_{name}_offset_bytes", text, one(offset))
    yield gauge(
        "rocketmq_storage_size",
        "Bytes of commitlog kept.",
        one(store.max_phy_offset - store.min_phy_offset),
    )
    yield gauge(
        "rocketmq_storage_flush_behind_bytes",
        "Bytes appended and not yet on disk.",
        one(max(0, store.max_phy_offset - store.flushed_offset)),
    )
    yield gauge(
        "rocketmq_storage_dispatch_behind_bytes",
        "Bytes appended and not yet in consume queues.",
        one(max(0, store.max_phy_offset - store.dispatched_offset)),
    )
    if store.earliest_store_timestamp > 0:
        yield gauge(
            "trioha_commitlog_earliest_timestamp_seconds",
            "When the oldest message kept was stored.",
            one(store.earliest_store_timestamp / 1000),
        )
        yield gauge(
            "rocketmq_storage_message_reserve_time",
            "Age of the oldest message kept, in milliseconds.",
            one(max(0, node.clock.wall_ms() - store.earliest_store_timestamp)),
        )
    yield gauge("trioha_disk_ratio", "Used share of the commitlog's disk.", one(store.disk_ratio))
    writable = store.writable and node.role is not BrokerRole.SLAVE
    yield gauge("trioha_writable", "1 when sends are accepted.", one(float(writable)))


def _traffic_families(node: BrokerNode, families: Families) -> Iterator[Metric]:
    store = node.store.statistics()
    ends: dict[str, int] = {}
    for topic, queue_id in node.store.queues():
        ends[topic] = ends.get(topic, 0) + node.store.max_offset_in_queue(topic, queue_id)
    yield families.counter(
        "rocketmq_messages_in",
        "Messages that the topic's queues have taken since they exist.",
        [((topic, _flag(topic.startswith(RETRY_PREFIX))), end) for topic, end in ends.items()],
        "topic",
        "is_retry",
    )
    counter = families.counter
    yield counter("trioha_puts", "Messages sent to this process.", one(store.put_total))
    yield counter("trioha_put_bytes", "Bytes of log written by them.", one(store.put_bytes))
    yield counter("rocketmq_messages_out", "Messages given out.", one(store.get_total))
    yield counter("rocketmq_throughput_out", "Bytes given out.", one(store.get_bytes))
    waits = node.core.metadata_waits
    yield counter(
        "trioha_metadata_unsafe",
        "Offset commits and topic or group changes answered without all that the mode promises.",
        one(waits.unsafe_count),
    )
    yield families.gauge(
        "trioha_metadata_waiting",
        "Offset commits and topic or group changes not yet answered: they wait for disk or slave.",
        one(waits.waiter_count),
    )
    yield families.gauge(
        "trioha_puts_waiting",
        "Messages stored and not yet answered: they wait for disk or slave.",
        one(node.core.pipeline.waiter_count),
    )


def _client_families(node: BrokerNode, families: Families) -> Iterator[Metric]:
    core, gauge = node.core, families.gauge
    yield gauge(
        "rocketmq_producer_connections",
        "Connections of a producer group.",
        [((group,), len(core.producers.members(group))) for group in core.producers.groups],
        "producer_group",
    )
    yield gauge(
        "rocketmq_consumer_connections",
        "Connections of a consumer group.",
        [((group,), len(core.consumers.members(group))) for group in core.consumers.groups],
        "consumer_group",
    )
    yield gauge(
        "trioha_connections",
        "Open connections of all kinds.",
        one(node.server.connection_count),
    )
    yield gauge("rocketmq_topic_number", "Topics this broker knows.", one(len(core.topics.topics)))
    yield gauge(
        "rocketmq_consumer_group_number",
        "Consumer groups with progress here.",
        one(len(core.offsets.topics_by_group())),
    )
    yield gauge(
        "rocketmq_consumer_lag_messages",
        "Messages between a group's commits and the ends of the topic's queues.",
        _lags(node),
        "consumer_group",
        "topic",
        "is_retry",
    )


def _registration_families(node: BrokerNode, families: Families) -> Iterator[Metric]:
    yield families.gauge(
        "rocketmq_broker_permission", "4 read + 2 write.", one(node.config.broker_permission)
    )
    yield families.gauge(
        "trioha_namesrv_registered",
        "Name servers that have this broker in their routes.",
        one(len(node.registration.registered)),
    )


def _lags(node: BrokerNode) -> Iterator[Sample]:
    offsets, store = node.core.offsets, node.store
    for group, topics in offsets.topics_by_group().items():
        for topic in topics:
            lag = 0
            for queue_id, offset in offsets.queues(group, topic).items():
                lag += max(0, store.max_offset_in_queue(topic, queue_id) - offset)
            yield (group, topic, _flag(topic.startswith(RETRY_PREFIX))), lag


def _namesrv_families(processor: NamesrvProcessor, counts: EventCounts) -> Iterator[Metric]:
    families = Families(node_type="namesrv")
    yield _build_info(families)
    brokers = processor.routes.cluster_info().broker_addr_table
    yield families.gauge(
        "trioha_namesrv_brokers",
        "Broker addresses registered, by role.",
        _by_role(brokers.values()),
        "cluster",
        "broker",
        "role",
    )
    yield families.gauge(
        "rocketmq_topic_number", "Topics in the routes.", one(len(processor.routes.topics()))
    )
    yield families.counter(
        "trioha_namesrv_expired",
        "Brokers dropped because nothing was heard of them.",
        one(counts["broker_expired"]),
    )
    yield families.counter(
        "trioha_namesrv_masters_refused",
        "Registrations as master of an epoch that is over.",
        one(counts["master_refused"]),
    )
    yield _events(families, counts)


def _events(families: Families, counts: EventCounts) -> Metric:
    return families.counter(
        "trioha_journal_events",
        "Events written to the journal, docs/journal.md has their meaning.",
        [((name,), count) for name, count in sorted(counts.all().items())],
        "event",
    )


def _by_role(brokers: Iterable[BrokerData]) -> Iterator[Sample]:
    for broker in brokers:
        masters = int(MASTER_ID in broker.broker_addrs)
        yield (broker.cluster, broker.broker_name, "master"), masters
        yield (broker.cluster, broker.broker_name, "slave"), len(broker.broker_addrs) - masters


def _flag(value: bool) -> str:
    return "true" if value else "false"

"""The metric families of every broker, made from its tables (`services.admin.metrics`).

A topic's messages are counted from its queues' ends, so that counter survives restarts and grows on
a slave, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from trioha.broker.put_message import PutPipeline
from trioha.config import BrokerRole
from trioha.config.exposure import is_exposed
from trioha.services.admin.http import OnGet
from trioha.services.admin.metrics import (
    build_info,
    certificate_families,
    events_family,
    insecure_family,
    page,
    traffic_families,
)
from trioha.services.admin.metrics_families import Families, HistogramSample, Sample, one
from trioha.services.node.views import MeasuredBroker
from trioha.wire.names import RETRY_PREFIX

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


def broker_metrics(node: MeasuredBroker) -> OnGet:
    """The /metrics page of a broker."""
    return lambda accept: page(_broker_families(node), accept)


def _broker_families(node: MeasuredBroker) -> Iterator[Metric]:
    config = node.config
    families = Families(
        cluster=config.broker_cluster_name,
        node_type="broker",
        node_id=config.broker_name,
        broker_id=str(config.broker_id),
    )
    yield build_info(families)
    yield insecure_family(families, is_exposed(config, node.keyring))
    yield from certificate_families(families, node.process.certificate_end_s())
    yield from _store_families(node, families)
    yield from _traffic_families(node, families)
    yield from _transaction_families(node, families)
    yield from _pop_families(node, families)
    yield from _timer_families(node, families)
    yield from _client_families(node, families)
    yield from _registration_families(node, families)
    yield from node.replication.families(families)
    yield events_family(families, node.events)


def _store_families(node: MeasuredBroker, families: Families) -> Iterator[Metric]:
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


def _traffic_families(node: MeasuredBroker, families: Families) -> Iterator[Metric]:
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
    cold = node.core.cold_reads
    text = "Bytes read from disk for pulls of messages that had left the page cache."
    yield counter("trioha_cold_read_bytes", text, one(cold.read_bytes_total))
    yield counter("trioha_cold_reads", "Pulls that were read from disk.", one(cold.read_total))
    yield families.gauge(
        "trioha_cold_pulls_waiting", "Pulls that wait for the disk.", one(len(cold))
    )
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


def _transaction_families(node: MeasuredBroker, families: Families) -> Iterator[Metric]:
    table, checks = node.core.deliveries.transactions, node.core.deliveries.transaction_checks
    counter = families.counter
    yield families.gauge(
        "trioha_transactions_open",
        "Half messages that are neither committed nor rolled back; 0 on a slave.",
        one(len(table.pending)),
    )
    oldest = table.pending.oldest
    yield families.gauge(
        "trioha_transactions_oldest_seconds",
        "Age of the open half message that was checked longest ago; 0 without one.",
        one(0 if oldest is None else max(0, node.clock.wall_ms() - oldest.born_ms) / 1000),
    )
    yield counter("trioha_transactions_committed", "Commits.", one(table.committed_count))
    yield counter("trioha_transactions_rolled_back", "Rollbacks.", one(table.rolled_back_count))
    yield counter("trioha_transactions_checks", "Checks.", one(checks.checked_count))
    yield counter(
        "trioha_transactions_unasked",
        "Checks for which no producer of the group was connected.",
        one(checks.unasked_count),
    )
    yield counter(
        "trioha_transactions_discarded",
        "Half messages that were moved to TRANS_CHECK_MAX_TIME_TOPIC.",
        one(checks.discarded_count),
    )


def _pop_families(node: MeasuredBroker, families: Families) -> Iterator[Metric]:
    core, counter = node.core, families.counter
    yield families.gauge(
        "trioha_pop_in_flight",
        "Pops that wait for acknowledgements, one for each queue; 0 on a slave.",
        one(len(core.pops.in_flight)),
    )
    yield families.gauge(
        "trioha_pop_parked", "Pops that wait for a message.", one(len(core.pop_hold))
    )
    redelivery = core.pops.redelivery
    yield counter(
        "trioha_pop_redelivered",
        "Popped messages that were not acknowledged in time and went to a retry topic.",
        one(redelivery.redelivered_count),
    )
    yield counter(
        "trioha_pop_dead",
        "Popped messages that went to a dead letter topic after the last redelivery.",
        one(redelivery.dead_count),
    )


def _timer_families(node: MeasuredBroker, families: Families) -> Iterator[Metric]:
    timers, counter = node.core.deliveries.timers, families.counter
    yield families.gauge(
        "trioha_timers_pending",
        "Timer messages that are not due yet, cancellations included; 0 on a slave.",
        one(timers.pending_count),
    )
    due_ms = timers.next_due_ms
    yield families.gauge(
        "trioha_timers_overdue_seconds",
        "Time since the next timer message was due; 0 while none is late.",
        one(0 if due_ms is None else max(0, node.clock.wall_ms() - due_ms) / 1000),
    )
    yield counter(
        "trioha_timers_delivered", "Timer messages delivered.", one(timers.delivered_count)
    )
    yield counter(
        "trioha_timers_cancelled", "Timer messages recalled.", one(timers.cancelled_count)
    )
    yield counter(
        "trioha_timers_rolled",
        "Copies of waiting timer messages, made before the log deletes them.",
        one(timers.rolled_count),
    )


def _client_families(node: MeasuredBroker, families: Families) -> Iterator[Metric]:
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
    server = node.server
    yield from traffic_families(
        families, node.traffic, server.connection_count, server.refused_count
    )
    yield families.counter(
        "trioha_requests_late",
        "Requests rejected because they had waited too long (waitTimeMillsInSendQueue).",
        one(core.waits.rejected_count),
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


def _registration_families(node: MeasuredBroker, families: Families) -> Iterator[Metric]:
    yield families.gauge(
        "rocketmq_broker_permission", "4 read + 2 write.", one(node.config.broker_permission)
    )
    yield families.gauge(
        "trioha_namesrv_registered",
        "Name servers that have this broker in their routes.",
        one(len(node.registration.registered)),
    )


def _lags(node: MeasuredBroker) -> Iterator[Sample]:
    offsets, store = node.core.offsets, node.store
    for group, topics in offsets.topics_by_group().items():
        for topic in topics:
            lag = 0
            for queue_id, offset in offsets.queues(group, topic).items():
                lag += max(0, store.max_offset_in_queue(topic, queue_id) - offset)
            yield (group, topic, _flag(topic.startswith(RETRY_PREFIX))), lag


def wait_sample(pipeline: PutPipeline) -> HistogramSample:
    """Bins double from 1 ms: the n-th counts waits of less than 2 to the n milliseconds."""
    waits = pipeline.slave_waits
    buckets: list[tuple[str, float]] = []
    count = 0
    for number, found in enumerate(waits.bins):
        count += found
        is_last = number == len(waits.bins) - 1
        buckets.append(("+Inf" if is_last else str((1 << number) / 1000), count))
    return (), buckets, waits.waited_ms / 1000


def _flag(value: bool) -> str:
    return "true" if value else "false"

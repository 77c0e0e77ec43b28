"""Metrics of a broker's replication: role, links, gaps, waits, failovers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from trioha.ha.mastership import Standing
from trioha.services.admin.metrics_families import Families, HistogramSample, one
from trioha.services.ha.status import gap_seconds
from trioha.services.ha.views import ToldNode
from trioha.services.node.metrics import wait_sample

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

_FAILOVER_BOUNDS_S = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)


def replication_families(node: ToldNode, families: Families) -> Iterator[Metric]:
    """Return the families for the node's present role."""
    yield from _failover_families(node, families)
    yield from _counted_families(node, families)
    if node.ha_master is not None:
        yield from _master_families(node, families)
    if node.ha_client is not None:
        yield from _slave_families(node, families)


def _master_families(node: ToldNode, families: Families) -> Iterator[Metric]:
    assert node.ha_master is not None
    rows = node.ha_master.statistics()
    wall_s = node.clock.wall_ms() / 1000
    gauge = families.gauge
    yield gauge("trioha_ha_connections", "Slaves that are connected.", one(len(rows)))
    yield gauge(
        "trioha_ha_in_sync",
        "1 when a put may wait for this slave.",
        [((row.peer,), float(row.in_sync)) for row in rows],
        "peer",
    )
    yield gauge(
        "trioha_ha_held_back_bytes",
        "End of the log that consumers do not see yet, since no slave holds it.",
        one(node.reader_service.held_back_bytes),
    )
    reported = [row for row in rows if row.slave_ack_offset >= 0]
    gaps = [((row.peer,), float(row.gap_bytes)) for row in reported]
    yield gauge("trioha_ha_gap_bytes", "Bytes of log the slave has not acked.", gaps, "peer")
    # The name that rocketmq-exporter uses, so dashboards built on it go on working.
    yield gauge("rocketmq_broker_commitlog_diff", "As trioha_ha_gap_bytes.", gaps, "peer")
    yield gauge(
        "trioha_ha_gap_seconds",
        "Age of the oldest message that the slave lacks.",
        [
            ((row.peer,), gap_s)
            for row in reported
            if (gap_s := gap_seconds(node, row, node.clock.instant())) is not None
        ],
        "peer",
    )
    yield gauge(
        "trioha_ha_ack_offset_bytes",
        "What the slave has acknowledged.",
        [((row.peer,), row.slave_ack_offset) for row in reported],
        "peer",
    )
    yield gauge(
        "trioha_ha_last_heartbeat_timestamp_seconds",
        "When the peer was last heard of.",
        [((row.peer, "from_slave"), wall_s - row.last_ack_age_s) for row in rows],
        "peer",
        "direction",
    )
    yield gauge(
        "trioha_ha_heartbeat_interval_seconds",
        "How often the peer is to be heard of at least.",
        [((row.peer,), row.heartbeat_interval_s) for row in rows],
        "peer",
    )


def _counted_families(node: ToldNode, families: Families) -> Iterator[Metric]:
    """Metrics of this process's time as a master, whatever its role is now."""
    counter = families.counter
    counts = node.events
    yield families.gauge(
        "trioha_commitlog_confirmed_offset_bytes",
        "The highest offset that any slave has acknowledged in this term.",
        one(node.replicas.push2slave_max_offset),
    )
    yield counter(
        "trioha_ha_transferred_bytes",
        "Bytes of log sent to slaves.",
        one(node.replicas.transferred_bytes),
    )
    yield counter(
        "trioha_ha_link_ups", "Links that came up, at either end.", one(counts["ha_connected"])
    )
    yield counter("trioha_ha_link_downs", "Links that went down.", one(counts["ha_disconnected"]))
    yield counter(
        "trioha_ha_refused",
        "Links refused or ended for what the peer said: a wrong ack, a foreign log, no proof.",
        one(counts["ha_refused"]),
    )
    yield families.histogram(
        "trioha_ha_sync_wait_seconds",
        "How long puts waited for a slave's acknowledgement.",
        [wait_sample(node.core.pipeline)],
    )
    pipeline = node.core.pipeline
    yield counter(
        "trioha_ha_sync_timeouts",
        "Puts answered FLUSH_SLAVE_TIMEOUT.",
        one(pipeline.slave_timeout_count),
    )
    yield counter(
        "trioha_ha_sync_unavailable",
        "Puts answered SLAVE_NOT_AVAILABLE.",
        one(pipeline.slave_unavailable_count),
    )


def _failover_families(node: ToldNode, families: Families) -> Iterator[Metric]:
    """Roles and epochs, and the failovers that this node remembers."""
    mastership = node.mastership
    yield families.gauge(
        "trioha_ha_role",
        "1 for the role this node has, 0 for the others.",
        [
            ((standing.value.lower(),), float(mastership.standing is standing))
            for standing in Standing
        ],
        "role",
    )
    yield families.gauge(
        "trioha_ha_epoch", "The newest epoch this node knows of.", one(mastership.known_epoch)
    )
    # The first role was reported before counting began.
    changes = node.events["role"]
    yield families.counter("trioha_role_changes", "Roles taken since the start.", one(changes))
    yield families.histogram(
        "trioha_failover_duration_seconds",
        "Failovers of this set that the node remembers, by how they ended.",
        failovers(node.audit.records),
        "kind",
        "result",
    )


def failovers(records: Iterable[Mapping[str, object]]) -> Iterator[HistogramSample]:
    """Yield the durations of past failovers, from the audit trail."""
    found: dict[tuple[str, str], list[float]] = {}
    for record in records:
        started, ended = record.get("started_wall_ms"), record.get("ended_wall_ms")
        if isinstance(started, int) and isinstance(ended, int):
            kind = "forced" if record.get("forced") else "planned"
            key = kind, str(record.get("result"))
            found.setdefault(key, []).append(max(0, ended - started) / 1000)
    for key, seconds in sorted(found.items()):
        buckets = [
            (str(bound), float(sum(one_s <= bound for one_s in seconds)))
            for bound in _FAILOVER_BOUNDS_S
        ]
        yield key, [*buckets, ("+Inf", float(len(seconds)))], sum(seconds)


def _slave_families(node: ToldNode, families: Families) -> Iterator[Metric]:
    assert node.ha_client is not None
    link = node.ha_client.statistics()
    gauge, peer = families.gauge, (link.master,)
    following = link.state == "TRANSFER"
    yield gauge("trioha_ha_connections", "1 while this slave follows.", one(float(following)))
    if link.gap_bytes is not None:
        text = "Bytes of log the master announced and this slave lacks."
        yield gauge("trioha_ha_gap_bytes", text, [(peer, link.gap_bytes)], "peer")
    if link.last_read_age_s is not None:
        yield gauge(
            "trioha_ha_last_heartbeat_timestamp_seconds",
            "When the peer was last heard of.",
            [((*peer, "from_master"), node.clock.wall_ms() / 1000 - link.last_read_age_s)],
            "peer",
            "direction",
        )
    yield families.counter(
        "trioha_ha_reconnects", "Attempts after the first.", [(peer, link.reconnects)], "peer"
    )

"""Status of a master-slave node beside that of any broker: links, epochs, mastership."""

from __future__ import annotations

import attrs

from trioha.config import BrokerRole
from trioha.errors import OffsetOutOfRange
from trioha.ha.epochs import EpochRecord
from trioha.ha.replicas import ReplicaStatistics
from trioha.remoting.channel import Instant
from trioha.services.ha.views import ToldNode
from trioha.wire import record

_HEAD_BYTES = 128  # a record's numbers, whatever its hosts


def master_slave_status(node: ToldNode, instant: Instant) -> dict[str, object]:
    """Plain values only: they travel as msgpack. Offsets in bytes, ages in seconds."""
    config = node.config
    connections: list[dict[str, object]] = []
    refusals: list[dict[str, object]] = []
    absent: list[dict[str, object]] = []
    if node.ha_master is not None:
        connections = [
            attrs.asdict(row) | {"gap_s": gap_seconds(node, row, instant)}
            for row in node.ha_master.statistics()
        ]
        absent = [attrs.asdict(host) for host in node.replicas.absent(instant.now_ms)]
        refusals = [
            {
                "peer": refusal.peer,
                "reason": refusal.reason,
                "age_s": (instant.now_ms - refusal.at_ms) / 1000,
            }
            for refusal in node.replicas.refusals
        ]
    slave: dict[str, object] | None = None
    if node.ha_client is not None:
        slave = attrs.asdict(node.ha_client.statistics()) | {
            "heartbeat_interval_s": config.ha_send_heartbeat_interval / 1000,
            "housekeeping_s": config.ha_housekeeping_interval / 1000,
            "metadata": "stream" if node.streams_metadata() else "poll",
            "metadata_position": node.ha_client.metadata_position,
        }
    mastership, ticket = node.mastership, node.failover.desk.ticket
    return mastership.facts(node.store.max_phy_offset) | {
        "connections": connections,
        "refusals": refusals,
        "absent": absent,
        "slave": slave,
        "epochs": [_epoch(record) for record in mastership.history],
        "follows": node.master_remoting_address.value if node.role is BrokerRole.SLAVE else "",
        "ticket": None if ticket is None else ticket.as_dict(instant.now_ms),
        "fenced_by": mastership.fenced_by,
        "held_back_bytes": node.reader_service.held_back_bytes,
    }


def _epoch(record: EpochRecord) -> dict[str, object]:
    return attrs.asdict(record) | {"nonce": record.nonce.hex()}


def gap_seconds(node: ToldNode, row: ReplicaStatistics, instant: Instant) -> float | None:
    """Return the age in seconds of the oldest message that the slave lacks.

    None if it is unknown: the slave has not reported, or holds a part of the message.
    """
    if row.slave_ack_offset < 0:
        return None
    if row.gap_bytes <= 0:
        return 0.0
    try:
        found = record.peek(node.store.read_log(row.slave_ack_offset, _HEAD_BYTES), 0)
    except (OffsetOutOfRange, record.RecordError):
        return None
    if found.phy_offset != row.slave_ack_offset:
        return None
    return max(0.0, (instant.wall_ms - found.store_timestamp) / 1000)

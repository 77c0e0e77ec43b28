"""The seam through which every ring reports what happened; `docs/journal.md` lists the events."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Protocol

import attrs


class EventSink(Protocol):
    """Takes structured events. Names and fields are a documented interface."""

    def event(self, name: str, **fields: object) -> None:
        """Record one event; fields are msgpack scalars, lists or maps."""


class NullSink:
    """Forgets everything: for tests and offline tools."""

    def event(self, name: str, **fields: object) -> None:
        pass


class EventLevel(IntEnum):
    """Level of an event in the log lines. The journal keeps events of every level."""

    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40


@attrs.frozen
class EventKind:
    level: EventLevel
    fields: tuple[str, ...] = ()
    """Names of the fields, as `docs/journal.md` explains them."""


def _debug(*fields: str) -> EventKind:
    return EventKind(EventLevel.DEBUG, fields)


def _info(*fields: str) -> EventKind:
    return EventKind(EventLevel.INFO, fields)


def _warning(*fields: str) -> EventKind:
    return EventKind(EventLevel.WARNING, fields)


def _error(*fields: str) -> EventKind:
    return EventKind(EventLevel.ERROR, fields)


_REGISTERED = ("broker", "id", "address", "cluster")

EVENTS: Mapping[str, EventKind] = {
    # The node.
    "node_started": _info("node", "version", "pid"),
    "node_ready": _info("listen", "ha_listen", "vip_listen", "admin_http", "elapsed_ms"),
    "node_insecure": _warning("address"),
    "node_stopping": _info("reason"),
    "node_stopped": _info("reason"),
    "role": _info("role", "broker_id", "version", "heartbeat_interval_ms", "heartbeat_limit_ms"),
    "epoch_began": _info("epoch", "start_offset", "sync"),
    "confirmed": _info("epoch", "reason"),
    "promised": _info("epoch"),
    "fenced": _warning("epoch", "reason"),
    "failover_ticket": _info("ticket", "operator", "origin"),
    "failover_ticket_ended": _info("ticket", "phase", "reason"),
    "writes_paused": _info("ticket", "log_end"),
    "writes_resumed": _info("ticket", "reason"),
    "forwarding_closed": _info("master", "forwarded", "rejected"),
    "promotion_failed": _warning("epoch", "reason"),
    "failover": _info("ticket", "operator", "result", "message"),
    "broker_progress": _debug("role", "max_phy_offset", "put_total", "get_total", "refused_total"),
    "cold_reads_began": _info("group", "topic", "queue"),
    "acl_loaded": _info("files", "accounts"),
    "acl_denied": _warning("peer", "code", "reason", "count"),
    "acl_rejected": _warning("reason"),
    "operator_change": _info("code", "request", "what", "peer", "account"),
    "certificate_loaded": _info("file", "expires"),
    "certificate_rejected": _warning("reason"),
    "certificate_expires": _warning("file", "reason"),
    "scheduling_delay": _info("seconds", "worst_ms", "waited_ms", "stolen_ms", "ran_ms"),
    "task_failed": _error("task", "error"),
    "journal_dropped": _warning("count", "reason"),
    # The store.
    "recovery_started": _info("clean"),
    "recovery_finished": _info("clean", "cut_bytes", "records", "elapsed_ms", "max_phy_offset"),
    "checkpoint_garbled": _warning("file"),
    "queues_rebuilt": _warning("count", "first", "reason", "elapsed_ms"),
    "index_rebuilt": _warning("reason"),
    "log_truncated": _warning("from_offset", "to_offset", "reason"),
    "log_cut": _warning("from_offset", "to_offset", "epoch", "kept"),
    "segment_deleted": _info("file", "reason"),
    "segments_kept": _warning("to_offset", "reason"),
    "flush_stalled": _warning("elapsed_ms"),
    "flush_failed": _error("error"),
    "write_refused": _warning("reason"),
    "write_resumed": _info("reason"),
    "delivery_skipped": _warning("level", "index", "reason"),
    "transaction_discarded": _warning("topic", "group", "index", "checks"),
    "transaction_lost": _warning("index", "reason"),
    "timer_skipped": _warning("index", "reason"),
    "timers_lost": _warning("index", "count"),
    # Connections.
    "connection_closed": _info("peer", "reason", "left_out"),
    "connection_refused": _warning("peer", "reason"),
    "vip_port_unavailable": _warning("reason"),
    "admin_port_unavailable": _warning("reason"),
    "request_refused": _warning("peer", "code", "reason"),
    "handler_failed": _error("peer", "code", "error", "traceback"),
    # Replication.
    "ha_connected": _info("peer", "offset"),
    "ha_disconnected": _warning("peer", "reason"),
    "ha_refused": _warning("peer", "reason", "left_out"),
    "ha_doubtful": _warning("peer", "reason"),
    "ha_heartbeat_late": _warning("peer", "age_ms"),
    "ha_heartbeat_resumed": _info("peer", "gap_ms"),
    "ha_progress": _debug("peer", "ack_offset", "max_phy_offset", "gap_bytes"),
    "ha_in_sync": _info("peer", "in_sync", "gap_bytes"),
    "sync_waits": _debug("puts", "waited_ms", "longest_ms", "bins", "timeouts", "unavailable"),
    "slave_synchronized": _debug("table"),
    "slave_synchronize_failed": _warning("table", "reason"),
    # A Raft group.
    "raft_waiting": _warning("reason"),
    "raft_founded": _info("members", "seed"),
    "raft_joined": _info("group"),
    "raft_impaired": _error("reason"),
    "raft_role": _info("role", "term", "leader", "reason"),
    "raft_connected": _info("peer", "address"),
    "raft_disconnected": _warning("peer", "reason"),
    "raft_refused": _warning("peer", "reason", "left_out"),
    "raft_commit_stalled": _warning("age_ms", "gap_bytes"),
    "raft_commit_resumed": _info("committed_offset"),
    "raft_failed": _error("reason"),
    # Name servers, seen from a broker and from within.
    "namesrv_registered": _info("namesrv"),
    "namesrv_unregistered": _info("namesrv"),
    "namesrv_failed": _warning("namesrv", "reason"),
    "broker_registered": _info(*_REGISTERED),
    "broker_expired": _warning(*_REGISTERED),
    "master_refused": _warning(*_REGISTERED, "epoch", "newest_epoch", "master"),
    "broker_unregistered": _info(*_REGISTERED, "reason"),
    # Topics and groups.
    "topic_changed": _info("topic"),
    "setting_changed": _info("key", "before", "after", "peer", "account"),
    "group_changed": _info("group"),
    "metadata_safe": _warning("safe", "reason"),
    "consumer_lag": _debug(
        "topic",
        "group",
        "lag",
        "consumer_offset",
        "broker_offset",
        "queues",
        "worst_queue",
        "offsets",
        "offsets_left",
    ),
    "progress_set_back": _info("topic", "group", "queues", "others"),
    "progress_reset": _info("topic", "group", "queues", "members", "peer"),
}
"""Every event a node may write. A test holds it against `docs/journal.md` and the code."""

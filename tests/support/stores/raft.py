"""Small stores of members of a DLEDGER group, and how one copies from another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.stores.small import dispatch_all, message, small_config
from trioha.broker.raft.log import RaftLog, RecoveredLog
from trioha.broker.raft.store import open_raft_log
from trioha.dledger.membership import Configuration
from trioha.dledger.ready import Control, LogWrite
from trioha.journal import EventSink, NullSink
from trioha.store.interface import PutResult, PutStatus
from trioha.store.store_config import StoreConfig
from trioha.wire.record import record_size

FOUNDERS = Configuration.of("n0", "n1", "n2")
ADDRESSES = {"n0": "127.0.0.1:10911", "n1": "127.0.0.1:10912", "n2": "127.0.0.1:10913"}
LONG_AFTER_MS = 1 << 50


def member_config(root: Path, **changes: Any) -> StoreConfig:
    """Deletes expired segments at any hour."""
    return small_config(root, **{"delete_hours": frozenset(range(24)), **changes})


def open_member(
    config: StoreConfig, events: EventSink | None = None
) -> tuple[RaftLog, RecoveredLog]:
    log = open_raft_log(config, events or NullSink(), wall_ms=1000)
    return log, log.recover(FOUNDERS)


def lead(log: RaftLog, term: int, leader: str = "n0") -> int:
    """Open a term; returns the end of its control record."""
    return log.append_control(Control(term, leader), ADDRESSES, 1000 + term)


def put(log: RaftLog, size: int = 100, *, topic: str = "T", queue_id: int = 0) -> PutResult:
    result = log.store.put_message(message(b"x" * size, topic=topic, queue_id=queue_id), 2000)
    assert result.status is PutStatus.PUT_OK, result.reason
    return result


def copy(leader: RaftLog, follower: RaftLog, term: int, size_max: int = 1 << 20) -> None:
    """Bring the follower's log, all of it the leader's, up to the leader's, which is of one term
    from there on."""
    while (offset := follower.store.max_phy_offset) < leader.store.max_phy_offset:
        body = leader.read(offset, size_max)
        follower.configurations_in(offset, term, body)
        follower.write(LogWrite(offset, term, body))
    dispatch_all(follower.store)


def fill_segment(log: RaftLog, rest: int) -> None:
    """Leave exactly `rest` bytes of the segment that the log's end lies in."""
    segment_bytes = log.store.config.segment_bytes
    room = segment_bytes - log.store.max_phy_offset % segment_bytes
    put(log, room - rest - record_size(0, len("T"), 0))
    assert log.store.max_phy_offset % segment_bytes == segment_bytes - rest

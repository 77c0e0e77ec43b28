"""Committed offsets out of a DLEDGER group's log: every commit is a record of it.

Theory of operation. Members keep their tables as records of topic ``TRIOHA_METADATA`` (decision
16): batches of changes, and snapshots of all tables in parts. This reads the part of
`trioha.broker.metadata_ops` and `trioha.broker.raft.records` that tells of offsets, and passes over
what it cannot understand. RocketMQ's own DLEDGER mode writes no such records.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import attrs
import msgpack

from trioha.analysis.engine import Engine, literal, literals
from trioha.wire.names import METADATA_TOPIC

_HEAD = struct.Struct(">BHH")  # kind, part, count
_QUEUES_GONE, _OFFSETS, _PROGRESS_GONE, _SNAPSHOT = 3, 6, 8, 10
_PAGE_ROWS = 10_000


@attrs.frozen
class LoggedOffsets:
    """Offsets of one group in one topic, as a record of the log leaves them."""

    wall_ms: int
    phy_offset: int
    offsets: Mapping[int, int]


def store_with_tables(engine: Engine, labels: list[str]) -> str | None:
    """Return the store that has the longest log of tables; None when none has any."""
    rows = engine.query(
        "SELECT store, MAX(phy_offset) AS last FROM commitlog "
        f"WHERE topic = {literal(METADATA_TOPIC)} AND store IN {literals(labels)} GROUP BY store",
    )
    longest = max(rows, key=lambda row: row["last"], default=None)
    return None if longest is None else str(longest["store"])


def logged_offsets(engine: Engine, store: str, group: str, topic: str) -> Iterator[LoggedOffsets]:
    """Yield the group's committed offsets in the topic after each record that changed them."""
    key = f"{topic}@{group}"
    offsets: dict[int, int] = {}
    for wall_ms, phy_offset, body in _bodies(engine, store):
        before = dict(offsets)
        for op in _ops_of(body):
            _apply(op, offsets, key, group, topic)
        if offsets != before:
            yield LoggedOffsets(wall_ms, phy_offset, dict(offsets))


def _apply(op: list[Any], offsets: dict[int, int], key: str, group: str, topic: str) -> None:
    match op:
        case [kind, dict(table)] if kind == _OFFSETS:
            offsets.update(table.get(key, {}))
        case [kind, *_, dict(table), _] if kind == _SNAPSHOT:
            offsets.clear()
            offsets.update(table.get(key, {}))
        case [kind, str(name)]:
            if (kind == _QUEUES_GONE and name == topic) or (
                kind == _PROGRESS_GONE and name == group
            ):
                offsets.clear()


def _bodies(engine: Engine, store: str) -> Iterator[tuple[int, int, bytes]]:
    """Yield store time, offset and bytes of each body of the log, joined from its parts."""
    last = -1
    pieces: list[bytes] = []
    while True:
        rows = engine.query(
            f"SELECT phy_offset, store_ms, body FROM commitlog_full WHERE store = {literal(store)} "
            f"AND topic = {literal(METADATA_TOPIC)} AND phy_offset > {last} "
            f"ORDER BY phy_offset LIMIT {_PAGE_ROWS}",
            topics={METADATA_TOPIC},
        )
        for row in rows:
            body = bytes(row["body"])
            if len(body) <= _HEAD.size:
                continue
            _, part, count = _HEAD.unpack_from(body)
            if part == 0:
                pieces = []
            elif part != len(pieces):
                continue  # the log begins in the middle of this body
            pieces.append(body[_HEAD.size :])
            if len(pieces) == count:
                yield row["store_ms"], row["phy_offset"], b"".join(pieces)
        if len(rows) < _PAGE_ROWS:
            return
        last = rows[-1]["phy_offset"]


def _ops_of(body: bytes) -> list[list[Any]]:
    try:
        _, *ops = msgpack.unpackb(body, strict_map_key=False)
    except (ValueError, TypeError, msgpack.UnpackException):
        return []
    return [op for op in ops if isinstance(op, list)]

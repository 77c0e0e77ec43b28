"""Records of one message: every place where it was stored, in every store given.

A message is looked for by key (a KEYS word or the client's unique id) or by id (unique id, or the
offset id that a send answers). Its copies (delayed, sent back, dead, committed) keep the unique id;
where a client gave none they keep ORIGIN_MESSAGE_ID, the first offset id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from trioha.analysis.engine import Engine, literal, literals
from trioha.errors import RemoteProtocolError
from trioha.wire.codes import SysFlag
from trioha.wire.message_id import decode_message_id, offset_message_id, pack_host
from trioha.wire.names import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TRACE_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    is_dlq_topic,
    is_retry_topic,
)
from trioha.wire.properties import Property

HOPS_MAX = 1000
_COLUMNS = (
    "store, phy_offset, size, topic, queue_id, queue_offset, sys_flag, born_ms, born_host, "
    "store_ms, store_host, reconsume_times, prepared_offset, term, tags, keys, unique_key, "
    "properties, crc_ok"
)


def find_hops(engine: Engine, wanted: str, *, by_id: bool) -> list[dict[str, Any]]:
    """The records of a message and of its copies, by store and offset.

    Each has the columns of `commitlog_full` but the body, and `kind`, `since_born_ms`,
    `delay_level`, `goes_to`, `origin`, `offset_id` and `origin_id`. At most `HOPS_MAX` match.
    """
    rows = _find(engine, _matches(wanted, by_id=by_id))
    hops = [_hop(row) for row in _with_copies(engine, rows)]
    return sorted(hops, key=lambda hop: (hop["store"], hop["phy_offset"]))


def _matches(wanted: str, *, by_id: bool) -> str:
    """SQL: whether a record is the one meant."""
    text = literal(wanted)
    parts = [f"unique_key = {text}"]
    if by_id:
        try:
            host, port, phy_offset = decode_message_id(wanted)
        except RemoteProtocolError:
            pass
        else:
            address = literals(spellings(host, port))
            parts.append(f"(phy_offset = {phy_offset} AND store_host IN {address})")
        if wanted.upper() != wanted:
            parts.append(f"unique_key = {literal(wanted.upper())}")
    else:
        parts.append(f"instr(' ' || keys || ' ', ' ' || {text} || ' ') > 0")
    return " OR ".join(parts)


def spellings(host: str, port: int) -> list[str]:
    """Return the spellings of an address in `store_host`: IPv6 with brackets."""
    return [f"{host}:{port}", f"[{host}]:{port}"]


def _find(engine: Engine, where: str) -> list[dict[str, Any]]:
    rows = engine.query(
        f"SELECT {_COLUMNS} FROM commitlog_full WHERE {where} "
        f"ORDER BY store_ms, store, phy_offset LIMIT {HOPS_MAX}",
    )
    for row in rows:
        properties = row["properties"]
        row["properties"] = json.loads(properties) if isinstance(properties, str) else properties
    return rows


def _with_copies(engine: Engine, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows, and those that are copies of the same messages."""
    uniques = {row["unique_key"] for row in rows if row["unique_key"]}
    origins = {
        origin for row in rows if (origin := row["properties"].get(Property.ORIGIN_MESSAGE_ID))
    }
    origins |= {_offset_id(row) for row in rows}
    wanted = []
    if uniques:
        wanted.append(f"unique_key IN {literals(sorted(uniques))}")
    if origins:
        origin = engine.item("properties", Property.ORIGIN_MESSAGE_ID)
        wanted.append(f"{origin} IN {literals(sorted(origins))}")
        for message_id in sorted(origins):
            try:
                host, port, phy_offset = decode_message_id(message_id)
            except RemoteProtocolError:
                continue  # a client wrote what it liked
            address = literals(spellings(host, port))
            wanted.append(f"(phy_offset = {phy_offset} AND store_host IN {address})")
    if not wanted:
        return rows
    found = {(row["store"], row["phy_offset"]): row for row in rows}
    found |= {(row["store"], row["phy_offset"]): row for row in _find(engine, " OR ".join(wanted))}
    return list(found.values())


def _hop(row: dict[str, Any]) -> dict[str, Any]:
    properties: Mapping[str, str] = row["properties"]
    topic = row["topic"]
    is_waiting = topic in (SCHEDULE_TOPIC, TIMER_TOPIC, TRANS_HALF_TOPIC)
    delay = properties.get(Property.DELAY, "")
    return row | {
        "kind": _kind(row),
        "since_born_ms": row["store_ms"] - row["born_ms"],
        "delay_level": int(delay) if topic == SCHEDULE_TOPIC and delay.isdecimal() else None,
        "goes_to": properties.get(Property.REAL_TOPIC, "") if is_waiting else "",
        "origin": properties.get(Property.RETRY_TOPIC, ""),
        "offset_id": _offset_id(row),
        "origin_id": properties.get(Property.ORIGIN_MESSAGE_ID, ""),
        "crc_ok": bool(row["crc_ok"]),
    }


def _kind(row: dict[str, Any]) -> str:
    topic = row["topic"]
    if is_dlq_topic(topic):
        return "dead letter"
    if is_retry_topic(topic):
        return "retry"
    if topic == SCHEDULE_TOPIC:
        return "waits for retry" if row["reconsume_times"] else "waits (delayed)"
    if topic == TIMER_TOPIC:
        if Property.TIMER_DEL_UNIQKEY in row["properties"]:
            return "recall"
        return "waits for retry" if row["reconsume_times"] else "waits (delayed)"
    if topic == TRANS_HALF_TOPIC:
        return "half message"
    if topic == TRANS_OP_HALF_TOPIC:
        return "transaction ended"
    if topic == TRACE_TOPIC:
        return "client trace"
    if row["sys_flag"] & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT:
        return "committed"
    if not {Property.DELAY, Property.TIMER_OUT_MS}.isdisjoint(row["properties"]):
        return "delivered after delay"
    return "stored"


def _offset_id(row: dict[str, Any]) -> str:
    host, _, port = row["store_host"].rpartition(":")
    return offset_message_id(pack_host(host.strip("[]"), int(port)), row["phy_offset"])

"""One message's way through every store given: each place where it was stored, in order.

A message is looked for by key (a KEYS word or the client's unique id) or by id (unique id, or the
offset id that a send answers). Its copies (delayed, sent back, dead, committed) keep the unique id;
where a client gave none they keep ORIGIN_MESSAGE_ID, the first offset id. Client traces stored in
RMQ_SYS_TRACE_TOPIC carry the ids as keys, so they show as hops too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trioha.analysis.engine import Engine, literal, literals, or_noted
from trioha.analysis.reports import REPORTS
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.words import count_of, say_ms, say_time
from trioha.analysis.results import Chart, Finding, Report, ReportOptions, Series
from trioha.analysis.schema import AnalysisError
from trioha.errors import RemoteProtocolError
from trioha.wire.codes import SysFlag
from trioha.wire.message_id import decode_message_id, offset_message_id, pack_host
from trioha.wire.names import (
    SCHEDULE_TOPIC,
    TRACE_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    is_dlq_topic,
    is_retry_topic,
)
from trioha.wire.properties import Property

SPEC = REPORTS["trace"]
NEEDS = frozenset({"commitlog_full", "key or id"})

HOPS_MAX = 1000
_GROUPS_MAX = 10
_COLUMNS = (
    "store, phy_offset, size, topic, queue_id, queue_offset, sys_flag, born_ms, born_host, "
    "store_ms, store_host, reconsume_times, prepared_offset, term, tags, keys, unique_key, "
    "properties, crc_ok"
)


def run(engine: Engine, options: ReportOptions) -> Report:
    """The report.

    Errors: AnalysisError when neither key nor id was given.
    """
    wanted = options.message_id or options.key
    if not wanted:
        raise AnalysisError("trace needs --key or --id: which message?")
    by_id = options.message_id is not None
    rows = _find(engine, _matches(wanted, by_id=by_id))
    rows = _with_copies(engine, rows)
    hops = [_hop(row) for row in rows]
    hops.sort(key=lambda hop: (hop["store"], hop["phy_offset"]))
    progress = _progress(engine, hops)
    for hop in hops:
        hop["consumed_by"] = ", ".join(
            row["consumer_group"]
            for row in progress
            if row["consumed"] and _place(row) == _place(hop)
        )
    return Report(
        **SPEC.heading,
        tables=[
            table(
                "hops",
                f"Where {wanted} was stored, in the order of each log",
                "store kind topic queue_id:integer queue_offset:integer phy_offset:integer "
                "store_ms:time since_born_ms:duration born_ms:time born_host store_host "
                "reconsume_times:integer delay_level:integer goes_to origin tags keys unique_key "
                "offset_id term:integer size:bytes crc_ok:flag consumed_by",
                hops,
            ),
            table(
                "progress",
                "How far groups have come in the queues it lies in",
                "store topic queue_id:integer queue_offset:integer consumer_group "
                "consumer_offset:integer consumed:flag",
                progress,
            ),
        ],
        charts=[_chart(hops)] if hops else [],
        findings=list(_findings(wanted, engine, hops, progress)),
    )


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
            address = literals(_spellings(host, port))
            parts.append(f"(phy_offset = {phy_offset} AND store_host IN {address})")
        if wanted.upper() != wanted:
            parts.append(f"unique_key = {literal(wanted.upper())}")
    else:
        parts.append(f"instr(' ' || keys || ' ', ' ' || {text} || ' ') > 0")
    return " OR ".join(parts)


def _spellings(host: str, port: int) -> list[str]:
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
            address = literals(_spellings(host, port))
            wanted.append(f"(phy_offset = {phy_offset} AND store_host IN {address})")
    if not wanted:
        return rows
    found = {(row["store"], row["phy_offset"]): row for row in rows}
    found |= {(row["store"], row["phy_offset"]): row for row in _find(engine, " OR ".join(wanted))}
    return list(found.values())


def _hop(row: dict[str, Any]) -> dict[str, Any]:
    properties: Mapping[str, str] = row["properties"]
    topic = row["topic"]
    is_waiting = topic in (SCHEDULE_TOPIC, TRANS_HALF_TOPIC)
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
    if topic == TRANS_HALF_TOPIC:
        return "half message"
    if topic == TRANS_OP_HALF_TOPIC:
        return "transaction ended"
    if topic == TRACE_TOPIC:
        return "client trace"
    if row["sys_flag"] & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT:
        return "committed"
    if Property.DELAY in row["properties"]:
        return "delivered after delay"
    return "stored"


def _offset_id(row: dict[str, Any]) -> str:
    host, _, port = row["store_host"].rpartition(":")
    return offset_message_id(pack_host(host.strip("[]"), int(port)), row["phy_offset"])


def _place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return row["store"], row["topic"], row["queue_id"], row["queue_offset"]


def _progress(engine: Engine, hops: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    rows = []
    for store in engine.stores:
        offsets = or_noted(engine, store.consumer_offsets) or {}
        for hop in hops:
            if hop["store"] != store.label or hop["kind"] == "waits (delayed)":
                continue
            for (topic, group), queues in sorted(offsets.items()):
                if topic == hop["topic"] and hop["queue_id"] in queues:
                    offset = queues[hop["queue_id"]]
                    rows.append(
                        {name: hop[name] for name in ("store", "topic", "queue_id", "queue_offset")}
                        | {
                            "consumer_group": group,
                            "consumer_offset": offset,
                            "consumed": offset > hop["queue_offset"],
                        }
                    )
    return rows


def _chart(hops: Sequence[dict[str, Any]]) -> Chart:
    """Each store is a lane: a hop lasts until the next one there."""
    series = []
    for store in sorted({hop["store"] for hop in hops}):
        lane = sorted(
            (hop for hop in hops if hop["store"] == store),
            key=lambda hop: (hop["store_ms"], hop["phy_offset"]),
        )
        ends: list[int | None] = [hop["store_ms"] for hop in lane[1:]]
        points = [
            (hop["store_ms"], end, f"{hop['kind']}: {hop['topic']}")
            for hop, end in zip(lane, [*ends, lane[-1]["store_ms"]], strict=True)
        ]
        series.append(Series(store, points))
    return Chart(
        title="The message's way, by store",
        kind="timeline",
        x_label="time stored (UTC)",
        y_label="store",
        x_kind="time",
        y_kind="category",
        series=series,
    )


def _findings(
    wanted: str,
    engine: Engine,
    hops: Sequence[dict[str, Any]],
    progress: Sequence[dict[str, Any]],
) -> Iterator[Finding]:
    if not hops:
        yield Finding.warning(f"No record with {wanted!r:.80} lies in stores and window.")
        return
    stores = {hop["store"] for hop in hops}
    first = min(hops, key=lambda hop: (hop["store_ms"], hop["phy_offset"]))
    last = max(hops, key=lambda hop: (hop["store_ms"], hop["phy_offset"]))
    yield Finding.info(
        f"{count_of(len(hops), 'record')} in {count_of(len(stores), 'store')}: first stored "
        f"{say_time(first['store_ms'])} in topic {first['topic']}, last "
        f"{say_ms(last['store_ms'] - first['store_ms'])} later as {last['kind']} in "
        f"{last['topic']}."
    )
    different = {hop["unique_key"] or hop["origin_id"] or hop["offset_id"] for hop in hops}
    if len(different) > 1:
        yield Finding.warning(
            f"These are {len(different):,} different messages; a unique id names one of them."
        )
    missing = [store.label for store in engine.stores if store.label not in stores]
    if missing:
        yield Finding.warning(f"It is not in {', '.join(missing)}.")
    for hop in hops:
        if hop["kind"] == "dead letter":
            yield Finding.warning(
                f"{hop['store']}: {hop['topic']} got it after "
                f"{count_of(hop['reconsume_times'], 'delivery')} that failed."
            )
        if not hop["crc_ok"]:
            yield Finding.error(f"{hop['store']}: its body at {hop['phy_offset']} is damaged.")
    left: dict[tuple[str, str, str], int] = {}
    for row in progress:
        if not row["consumed"]:
            place = (row["consumer_group"], row["topic"], row["store"])
            left[place] = left.get(place, 0) + 1
    for (group, topic, store), count in sorted(left.items())[:_GROUPS_MAX]:
        yield Finding.info(
            f"{store}: group {group} has not consumed {count_of(count, 'record')} of it in "
            f"{topic} yet."
        )
    if len(hops) >= HOPS_MAX:
        yield Finding.warning(f"Only the first {HOPS_MAX:,} records are shown.")

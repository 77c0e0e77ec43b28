"""One message's way through every store given: each place where it was stored, in order.

A message is looked for by key (a KEYS word or the client's unique id) or by id (unique id, or the
offset id that a send answers). Its copies (delayed, sent back, dead, committed) keep the unique id;
where a client gave none they keep ORIGIN_MESSAGE_ID, the first offset id. Client traces stored in
RMQ_SYS_TRACE_TOPIC carry the ids as keys, so they show as hops too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from trioha.analysis.engine import Engine, or_noted
from trioha.analysis.reports import REPORTS
from trioha.analysis.reports.hops import HOPS_MAX, find_hops
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.words import count_of, say_ms, say_time
from trioha.analysis.results import Chart, Finding, Report, ReportOptions, Series
from trioha.analysis.schema import AnalysisError

SPEC = REPORTS["trace"]
NEEDS = frozenset({"commitlog_full", "key or id"})

_GROUPS_MAX = 10


def run(engine: Engine, options: ReportOptions) -> Report:
    """The report.

    Errors: AnalysisError when neither key nor id was given.
    """
    wanted = options.message_id or options.key
    if not wanted:
        raise AnalysisError("trace needs --key or --id: which message?")
    by_id = options.message_id is not None
    hops = find_hops(engine, wanted, by_id=by_id)
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

"""One message explained: by its id or by a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trioha.analysis.explain.case import Case
from trioha.analysis.explain.delivery import explain_delivery
from trioha.analysis.explain.explanation import Explanation
from trioha.analysis.explain.records import records_of
from trioha.analysis.explain.storing import explain_storing
from trioha.analysis.explain.surroundings import tell_events
from trioha.analysis.explain.waiting import explain_waiting
from trioha.analysis.reports.hops import HOPS_MAX, find_hops, spellings
from trioha.analysis.reports.words import count_of, say_time
from trioha.errors import RemoteProtocolError
from trioha.wire.message_id import decode_message_id

MESSAGES_MAX = 5
"""Messages of one key that are explained; the others are counted."""
_OF_OTHERS = frozenset({"client trace", "transaction ended"})
"""Kinds of records that tell of a message and are none."""


def explain_message(
    case: Case, wanted: str, *, by_id: bool, group: str | None = None
) -> Explanation:
    """Explain the message of an id, or the messages of a key.

    `group`: explain the delivery to this consumer group alone.
    """
    answer = Explanation(f"{'message' if by_id else 'key'} {wanted}")
    hops = [
        hop for hop in find_hops(case.engine, wanted, by_id=by_id) if hop["kind"] not in _OF_OTHERS
    ]
    _admit_limits(case, answer)
    if not hops:
        _explain_absence(case, answer, wanted, by_id=by_id)
        return answer.finish()
    answer.is_found = True
    messages = _by_message(hops, wanted)
    if len(messages) > 1:
        shown = min(len(messages), MESSAGES_MAX)
        answer.conclude(
            "several messages",
            f"{len(messages)} messages have the {'id' if by_id else 'key'} {wanted}; the first "
            f"{shown} are explained, in the order of storing. An id names one of them: "
            f"{', '.join(list(messages)[:MESSAGES_MAX])}.",
        )
    for name, of_message in list(messages.items())[:MESSAGES_MAX]:
        records = records_of(case, of_message)
        about = f"{name}: " if len(messages) > 1 else ""
        explain_storing(case, answer, records, about)
        explain_waiting(case, answer, records, about)
        end_ms = explain_delivery(case, answer, records, about, group)
        tell_events(case, answer, records[0].born_ms, end_ms)
    if len(hops) >= HOPS_MAX:
        answer.admit(f"Only the first {HOPS_MAX:,} records were looked at.")
    return answer.finish()


def _by_message(
    hops: Sequence[Mapping[str, Any]], wanted: str
) -> dict[str, list[Mapping[str, Any]]]:
    """Hops by the id of their message, in the order of storing.

    Copies are searched by offset and store host too, which finds a record of another log when a
    broker's address was used again: messages in which nothing bears the id or key are left out.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for hop in sorted(hops, key=lambda hop: (hop["store_ms"], hop["phy_offset"])):
        name = hop["unique_key"] or hop["origin_id"] or hop["offset_id"]
        found.setdefault(name, []).append(hop)
    return {
        name: of_message
        for name, of_message in found.items()
        if any(_bears(hop, wanted) for hop in of_message)
    }


def _bears(hop: Mapping[str, Any], wanted: str) -> bool:
    ids = {hop["unique_key"], hop["origin_id"], hop["offset_id"]}
    return not ids.isdisjoint({wanted, wanted.upper()}) or wanted in (hop["keys"] or "").split()


def _explain_absence(case: Case, answer: Explanation, wanted: str, *, by_id: bool) -> None:
    what = "id" if by_id else "key"
    answer.conclude("not stored", f"No record in these stores has the {what} {wanted}.")
    for label, bounds in case.bounds.items():
        answer.witness(bounds.first_ms, label, "the oldest record of this log was stored")
        answer.witness(bounds.last_ms, label, "the newest record of this log was stored")
    if by_id:
        _explain_deleted(case, answer, wanted)
    answer.admit(
        "A message that was deleted with old segments, sent to a broker whose store was not "
        "given, or never acknowledged to its producer leaves no record in these stores."
    )


def _explain_deleted(case: Case, answer: Explanation, wanted: str) -> None:
    """Say that the record of an offset id went with an old segment, where its host wrote."""
    try:
        host, port, offset = decode_message_id(wanted)
    except RemoteProtocolError:
        return
    rows = case.engine.query("SELECT DISTINCT store, store_host FROM commitlog")
    hosts = {(row["store"], row["store_host"]) for row in rows}
    for store in case.stores:
        log = case.bounds.get(store.label)
        is_ours = not hosts.isdisjoint((store.label, text) for text in spellings(host, port))
        if log is not None and is_ours and 0 <= offset < log.first_offset:
            answer.conclude(
                "deleted",
                f"{store.label} has deleted that part of its log: the id says offset {offset}, the "
                f"log begins at {log.first_offset} (stored {say_time(log.first_ms)}).",
            )


def _admit_limits(case: Case, answer: Explanation) -> None:
    if not case.engine.journal_count:
        answer.admit(
            "No journal was given or found: outages, changes of the master and the time of "
            "consumption are not known."
        )
    damage = case.engine.query("SELECT COUNT(*) AS found FROM commitlog_corrupt")[0]["found"]
    if damage:
        answer.admit(
            f"{count_of(damage, 'stretch')} of these logs cannot be read: records in there are "
            "not found. `trioha analyze --report integrity` lists the stretches."
        )

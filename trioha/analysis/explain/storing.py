"""Storing of a message: places and times, repeats, and the replicas that hold it."""

from __future__ import annotations

from collections.abc import Sequence

from trioha.analysis.engine import or_noted
from trioha.analysis.explain.case import Case
from trioha.analysis.explain.explanation import Explanation
from trioha.analysis.explain.records import StoredRecord
from trioha.analysis.explain.surroundings import blame_outages
from trioha.analysis.reports.lives import stores_of_journals
from trioha.analysis.reports.words import count_of, say_ms, say_time
from trioha.analysis.store_files import StoreFiles

LATE_MS = 1_000
"""A message is called late when it was stored longer than this after its birth."""


def explain_storing(
    case: Case, answer: Explanation, records: Sequence[StoredRecord], about: str
) -> None:
    """Explain where the records of one message lie."""
    for record in records:
        _tell_record(case, answer, record)
    first = records[0]
    known = f" as {first.kind} for topic {first.target}" if not first.is_seen else ""
    answer.conclude(
        "stored",
        f"{about}It was stored {say_time(first.store_ms)}{known} in {first.place}, by "
        f"{first.row['store_host']}.",
    )
    waited_ms = first.store_ms - first.born_ms
    if waited_ms >= LATE_MS:
        answer.conclude(
            "stored late",
            f"{about}It was stored {say_ms(waited_ms)} after its producer made it, by the clocks "
            "of two machines.",
        )
        blame_outages(case, answer, first, first.born_ms, first.store_ms, "before it was stored")
    _explain_repeats(answer, records, about)
    _explain_replicas(case, answer, records, about)
    for record in records:
        if not record.row["crc_ok"]:
            answer.conclude(
                "damaged",
                f"{about}The body at offset {record.phy_offset} does not match its checksum.",
            )


def _tell_record(case: Case, answer: Explanation, record: StoredRecord) -> None:
    text = f"{record.kind}: {record.place}, offset {record.phy_offset} of the log"
    for label in record.stores:
        answer.witness(record.store_ms, label, text)
    for label in record.cuts:
        owner, cut = case.cuts[label]
        answer.witness(record.store_ms, owner.label, f"{text}; cut from this log later")
        answer.witness(
            cut.wall_ms,
            owner.label,
            f"gave up its log from {cut.begin} to {cut.end}, with this record; kept in {cut.path}",
        )
    if record.born_ms != record.store_ms:
        answer.witness(
            record.born_ms,
            f"producer {record.row['born_host']}",
            f"made or sent what was stored at {record.phy_offset}, by its own clock",
        )


def _explain_repeats(answer: Explanation, records: Sequence[StoredRecord], about: str) -> None:
    """Say that a producer sent a message again; needs a unique id."""
    repeats = [record for record in records if record.is_seen and record.row["unique_key"]]
    # Consumers of the new master do not see a copy that lies only in a cut.
    repeats = [record for record in repeats if record.stores]
    topics = {record.topic for record in repeats}
    if len(repeats) < 2 or len(topics) > 1:
        return
    times = ", ".join(say_time(record.store_ms) for record in repeats)
    apart_ms = repeats[-1].store_ms - repeats[0].store_ms
    if all(record.kind == "committed" for record in repeats):
        answer.conclude(
            "committed twice",
            f"{about}Its transaction was committed {len(repeats)} times: the message is in topic "
            f"{repeats[0].topic} as often ({times}; {say_ms(apart_ms)} apart), and a consumer "
            "receives each of them.",
        )
        return
    answer.conclude(
        "stored twice",
        f"{about}The same unique id was stored {len(repeats)} times in topic {repeats[0].topic} "
        f"({times}; {say_ms(apart_ms)} apart): the producer sent it again, and a consumer "
        "receives each of them.",
    )


def _explain_replicas(
    case: Case, answer: Explanation, records: Sequence[StoredRecord], about: str
) -> None:
    is_everywhere, replicas_seen = True, 1
    for record in records:
        if not record.stores:
            is_everywhere = False
            owner, _ = case.cuts[record.cuts[0]]
            replicas_seen = max(replicas_seen, len(case.replicas_of(owner.label)))
            _explain_cut(case, answer, record, records, about)
            continue
        replicas = case.replicas_of(record.stores[0])
        replicas_seen = max(replicas_seen, len(replicas))
        for replica in replicas:
            if replica.label not in record.stores:
                is_everywhere = False
                _explain_lack(case, answer, record, replica, about)
    if replicas_seen == 1:
        answer.admit(
            "One store of this broker was given: whether other replicas hold the message is not "
            "known."
        )
    elif is_everywhere:
        answer.conclude(
            "in every replica",
            f"{about}All {count_of(replicas_seen, 'replica')} that were given hold it.",
        )


def _explain_cut(
    case: Case,
    answer: Explanation,
    record: StoredRecord,
    records: Sequence[StoredRecord],
    about: str,
) -> None:
    owner, cut = case.cuts[record.cuts[0]]
    again = next((other for other in records if other.stores and other.is_seen), None)
    then = (
        f"It was stored again {say_time(again.store_ms)} in {again.place}."
        if again is not None
        else f"No log that was given holds it; `trioha ha recover {cut.path}` sends it again."
    )
    answer.conclude(
        "cut",
        f"{about}{owner.label} gave it up {say_time(cut.wall_ms)}, when it followed a new master "
        f"that does not have it (offset {record.phy_offset}, cut from {cut.begin}). {then}",
    )


def _explain_lack(
    case: Case, answer: Explanation, record: StoredRecord, replica: StoreFiles, about: str
) -> None:
    """Say why a replica does not hold a record of another one."""
    holders, label = ", ".join(record.stores), replica.label
    bounds = case.bounds.get(label)
    place = f"the record at {record.phy_offset}"
    if bounds is not None and record.phy_offset < bounds.first_offset:
        answer.conclude(
            "not in a replica",
            f"{about}{label} has deleted that part of its log: its log begins at "
            f"{bounds.first_offset}.",
        )
        return
    is_fork = bounds is not None and record.phy_offset <= bounds.last_offset
    took_over = _took_over(case, record, replica)
    if took_over or is_fork:
        how = took_over or f"{label} has another record at that offset or near it"
        answer.conclude(
            "lost at a failover",
            f"{about}Only {holders} holds {place}; {label} does not: {how}. When {holders} follows "
            f"{label}, it gives the record up and keeps it in its folder cut.",
        )
        return
    ends = "it holds no record" if bounds is None else f"its log ends {say_time(bounds.last_ms)}"
    answer.conclude(
        "not in a replica",
        f"{about}{label} does not hold {place}: {ends}. It was behind when its files were read.",
    )


def _took_over(case: Case, record: StoredRecord, replica: StoreFiles) -> str:
    """Return how a replica became the master without a record; empty if it is not known."""
    engine = case.engine
    theirs = or_noted(engine, replica.epochs)
    holders = [store for store in case.stores if store.label in record.stores]
    ours = [history.epoch for store in holders if (history := or_noted(engine, store.epochs))]
    newest = theirs.newest if theirs is not None else None
    if newest is not None and newest.epoch > max(ours, default=0):
        if newest.start_offset <= record.phy_offset:
            return (
                f"it became the master in epoch {newest.epoch}, from offset {newest.start_offset}"
            )
        return ""
    for life in case.lives.lives:
        if replica.label in stores_of_journals(engine, {life.journal}):
            for begin_ms, _, stint in life.masterships():
                if begin_ms >= record.store_ms:
                    return f"it became the master ({stint.role}) {say_time(begin_ms)}"
    return ""

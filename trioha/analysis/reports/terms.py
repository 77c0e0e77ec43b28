"""Terms of mastership as stores keep them, and what was cut from their logs.

A store's file `epochs` names every term its log has lived through; its folder `cut` keeps what a
node gave up when it followed a master that did not have it. Both are small, and are read here,
whatever the engine. Classic stores, and Java's, have neither.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from trioha.analysis.engine import Engine, or_noted
from trioha.analysis.reports.tables import table
from trioha.analysis.reports.words import count_of, say_bytes, say_time
from trioha.analysis.results import Finding, Table
from trioha.errors import StoreError
from trioha.ha.epochs import EpochHistory, EpochRecord
from trioha.store.cuts import Cut

Histories = Mapping[str, EpochHistory]
"""Epoch history by store."""


def histories_of(engine: Engine) -> Histories:
    """Return every store's history; it is empty for a classic store, or an unreadable file."""
    return {
        store.label: or_noted(engine, store.epochs) or EpochHistory() for store in engine.stores
    }


def term_at(history: EpochHistory, phy_offset: int) -> EpochRecord | None:
    """The term in which a byte was written; None when that was before there were any."""
    return history.cut(phy_offset).newest


def terms_table(histories: Histories) -> Table:
    """Return the table of every term of every store."""
    return table(
        "epochs",
        "Terms of mastership, as each store keeps them; end_offset is empty for the last one",
        "store epoch:integer begin_ms:time start_offset:integer end_offset:integer home_id:integer "
        "sync:flag nonce",
        [
            {
                "store": store,
                "epoch": record.epoch,
                "begin_ms": record.began_wall_ms or None,
                "start_offset": record.start_offset,
                "end_offset": following.start_offset if following else None,
                "home_id": record.home_id,
                "sync": record.sync,
                "nonce": record.nonce.hex(),
            }
            for store, history in histories.items()
            for record, following in zip(
                history.records, (*history.records[1:], None), strict=False
            )
        ],
    )


def say_parting(a: str, b: str, histories: Histories, phy_offset: int) -> str:
    """Say in which terms two logs were where they part; empty when they have none."""
    terms = {store: term_at(histories[store], phy_offset) for store in (a, b)}
    if not any(terms.values()):
        return ""
    if terms[a] == terms[b]:
        record = terms[a]
        return f" Both were in epoch {record.epoch}." if record else ""
    return f" There {' and '.join(_say(store, term) for store, term in terms.items())}."


def _say(store: str, term: EpochRecord | None) -> str:
    if term is None:
        return f"{store} was in no epoch"
    return f"{store} was in epoch {term.epoch} (of node {term.home_id}, from {term.start_offset})"


def cuts(engine: Engine) -> tuple[list[Table], list[Finding]]:
    """Return the ends of logs that stores gave up, and kept aside."""
    found = [(store.label, cut) for store in engine.stores for cut in store.cuts()]
    if not found:
        return [], []
    rows = [_row(engine, store, cut) for store, cut in found]
    return [
        table(
            "cuts",
            "Ends of logs that were given up for a master's, and are kept in the folder cut",
            "store cut_ms:time begin:integer end:integer bytes:bytes records:integer queues kept",
            rows,
        )
    ], list(_findings(rows))


def _row(engine: Engine, store: str, cut: Cut) -> dict[str, object]:
    note: Mapping[str, object] = {}
    try:
        note = cut.note
    except StoreError as error:
        engine.note(str(error))
    queues = note.get("queues")
    named = [
        f"{queue['topic']}/{queue['queue_id']}: {queue['count']}"
        for queue in (queues if isinstance(queues, Sequence) else ())
        if isinstance(queue, dict) and {"topic", "queue_id", "count"} <= queue.keys()
    ]
    return {
        "store": store,
        "cut_ms": cut.wall_ms,
        "begin": cut.begin,
        "end": cut.end,
        "bytes": cut.end - cut.begin,
        "records": note.get("records"),
        "queues": ", ".join(named),
        "kept": str(cut.path),
    }


def _findings(rows: Sequence[Mapping[str, object]]) -> Iterator[Finding]:
    for row in rows:
        size, when, records = row["bytes"], row["cut_ms"], row["records"]
        assert isinstance(size, int)
        assert isinstance(when, int)
        held = f"{count_of(records, 'message')}, " if isinstance(records, int) else ""
        yield Finding.warning(
            f"{row['store']} gave up {held}{say_bytes(size)} from {row['begin']} on for its "
            f"master's log ({say_time(when)}); they are kept in {row['kept']}."
        )

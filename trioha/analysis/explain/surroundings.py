"""Events at the broker around a message: outages, roles, terms, cuts, refusals."""

from __future__ import annotations

from trioha.analysis.explain.case import Case
from trioha.analysis.explain.explanation import Explanation
from trioha.analysis.explain.records import StoredRecord
from trioha.analysis.reports.words import say_ms, say_time

EVENTS_MAX = 60
"""Lines of the journals on one message."""
_EVENTS = {
    "node_started": "the node began",
    "node_ready": "the node serves",
    "node_stopping": "the node was asked to stop",
    "node_stopped": "the node stopped",
    "role": "the node took a role",
    "epoch_began": "a term of mastership began",
    "fenced": "the node takes no more writes",
    "failover": "a failover ended",
    "promotion_failed": "the node could not become the master",
    "writes_paused": "writes were parked for a planned switch",
    "writes_resumed": "the switch was given up",
    "write_refused": "writes were refused from then on",
    "write_resumed": "writes were taken again",
    "log_truncated": "the log got shorter",
    "log_cut": "an end of the log was given up",
    "segment_deleted": "a file of the log was deleted",
    "ha_connected": "a link between master and slave began",
    "ha_disconnected": "a link between master and slave ended",
    "raft_role": "the member's role in its group changed",
    "raft_commit_stalled": "the group committed nothing",
    "raft_commit_resumed": "the group committed again",
    "delivery_skipped": "a delayed message could not be delivered",
    "transaction_discarded": "a half message was given up",
    "transaction_lost": "a half message was lost",
    "journal_dropped": "events of the journal were lost",
}
"""Events that can explain a message, and what they say."""


def blame_outages(
    case: Case,
    answer: Explanation,
    record: StoredRecord,
    begin_ms: int,
    end_ms: int,
    when: str,
) -> None:
    """Add the outages of a record's broker between two times, as verdicts."""
    label = record.stores[0] if record.stores else case.cuts[record.cuts[0]][0].label
    for outage in case.outages_within(label, begin_ms, end_ms):
        until = "to the end of the journals"
        if outage.end_ms is not None:
            until = f"for {say_ms(outage.lasted_ms)}, to {say_time(outage.end_ms)}"
        answer.conclude(
            "outage",
            f"{outage.broker} had no writable master from {say_time(outage.begin_ms)} {until} "
            f"({outage.cause}): {when}.",
        )


def tell_events(case: Case, answer: Explanation, begin_ms: int, end_ms: int) -> None:
    """Add the events of all journals between two times, and the outages, as evidence."""
    for outage in case.outages:
        if outage.begin_ms <= end_ms and (outage.end_ms is None or outage.end_ms >= begin_ms):
            answer.witness(
                outage.begin_ms, outage.broker, f"no writable master from here on: {outage.cause}"
            )
            if outage.end_ms is not None:
                answer.witness(outage.end_ms, outage.broker, "a master takes writes again")
    count = 0
    for row in case.engine.journal(_EVENTS.keys()):
        if not begin_ms <= row.wall_ms <= end_ms:
            continue
        count += 1
        if count <= EVENTS_MAX:
            fields = ", ".join(f"{name} {value}" for name, value in row.fields.items() if value)
            said = f"{_EVENTS[row.name]} ({row.name}{': ' if fields else ''}{fields})"
            answer.witness(row.wall_ms, row.node, said)
    if count > EVENTS_MAX:
        answer.admit(
            f"{count - EVENTS_MAX} more events of the journals lie in that time; "
            "`trioha journal show` prints them."
        )

"""One consumer group explained at one time: what it had before it, and what stood in its way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trioha.analysis.engine import literal, literals
from trioha.analysis.explain.case import Case
from trioha.analysis.explain.explanation import Explanation
from trioha.analysis.explain.offset_history import OffsetsAt, offset_history, resets_of
from trioha.analysis.explain.progress import Committed, committed_offsets, samples_of
from trioha.analysis.explain.surroundings import tell_events
from trioha.analysis.reports.first_stores import has_prefix
from trioha.analysis.reports.retry_groups import group_of_retry
from trioha.analysis.reports.words import MINUTE_MS, count_of, say_ms, say_time
from trioha.analysis.schema import AnalysisError
from trioha.analysis.store_files import StoreFiles
from trioha.wire.names import RETRY_PREFIX, dlq_topic
from trioha.words import what_there_is

AROUND_MS = 5 * MINUTE_MS
"""Events within this before and after the time are evidence."""


def explain_group(case: Case, group: str, at_ms: int) -> Explanation:
    """Explain where a group stood at a time, in milliseconds since 1970.

    Errors: AnalysisError when no store knows the group, or the time lies outside of what the
    stores and journals tell.
    """
    _check_time(case, at_ms)
    answer = Explanation(f"group {group} at {say_time(at_ms)}", is_found=True)
    is_known = False
    known: set[str] = set()
    told: set[str] = set()
    for store in case.stores:
        if store.label in told:
            continue
        replicas = case.replicas_of(store.label)
        told |= {replica.label for replica in replicas}
        offsets = committed_offsets(case, replicas)
        known |= {name for _, name in offsets}
        for (topic, name), queues in sorted(offsets.items()):
            if name == group:
                is_known = True
                _explain_topic(case, answer, replicas, topic, group, queues, at_ms)
        is_known |= _explain_failures(case, answer, replicas, group, at_ms)
    if not is_known:
        raise AnalysisError(f"no store knows the group {group}{what_there_is(group, known)}")
    for outage in case.outages:
        if outage.begin_ms <= at_ms and (outage.end_ms is None or outage.end_ms >= at_ms):
            until = "the end of the journals" if outage.end_ms is None else say_time(outage.end_ms)
            answer.conclude(
                "outage",
                f"{outage.broker} had no writable master then: from {say_time(outage.begin_ms)} to "
                f"{until} ({outage.cause}).",
            )
    tell_events(case, answer, at_ms - AROUND_MS, at_ms + AROUND_MS)
    return answer.finish()


def _check_time(case: Case, at_ms: int) -> None:
    times = [ms for each in case.bounds.values() for ms in (each.first_ms, each.last_ms)]
    if case.engine.journal_count:
        times += [row.wall_ms for row in case.engine.journal()]
    if not times:
        raise AnalysisError("the stores hold no record and no journal tells of a time")
    if not min(times) <= at_ms <= max(times):
        raise AnalysisError(
            f"{say_time(at_ms)} lies outside of these files, which reach from "
            f"{say_time(min(times))} to {say_time(max(times))}; name a time in between"
        )


def _explain_topic(
    case: Case,
    answer: Explanation,
    replicas: Sequence[StoreFiles],
    topic: str,
    group: str,
    queues: Mapping[int, Committed],
    at_ms: int,
) -> None:
    left, oldest_ms, stored = 0, None, 0
    for queue_id, committed in sorted(queues.items()):
        row = _stored_until(case, replicas, topic, queue_id, committed.offset, at_ms)
        stored += row["stored"]
        left += row["left_over"]
        if row["oldest_ms"] is not None:
            oldest_ms = min(row["oldest_ms"], oldest_ms or row["oldest_ms"])
        if committed.written_ms is not None:
            answer.witness(
                committed.written_ms,
                committed.store,
                f"consumerOffset.json was written: topic {topic}, queue {queue_id}: offset "
                f"{committed.offset}",
            )
    answer.conclude(
        "stored until then",
        f"Topic {topic} had {count_of(stored, 'message')} until then in the queues that the group "
        "has read.",
    )
    if not _explain_offsets(case, answer, replicas, topic, group, queues, at_ms):
        _explain_samples(case, answer, replicas, topic, group, at_ms)
    if left and oldest_ms is not None:
        answer.conclude(
            "not consumed",
            f"By its newest committed offsets the group has yet to consume "
            f"{count_of(left, 'message')} of topic {topic} from before that time; the oldest was "
            f"stored {say_time(oldest_ms)}.",
        )
    elif stored:
        answer.conclude(
            "consumed",
            f"The group has consumed all of topic {topic} that was stored until then, by its "
            "newest committed offsets.",
        )


def _explain_offsets(
    case: Case,
    answer: Explanation,
    replicas: Sequence[StoreFiles],
    topic: str,
    group: str,
    queues: Mapping[int, Committed],
    at_ms: int,
) -> bool:
    """Say what the group lacked by its offsets on both sides of the time; False if not known."""
    history = offset_history(case, replicas, group, topic)
    before: dict[int, tuple[OffsetsAt, int]] = {}
    after: dict[int, tuple[OffsetsAt, int]] = {}
    for each in history:
        for queue_id, offset in each.offsets.items():
            if each.wall_ms <= at_ms:
                before[queue_id] = each, offset
            else:
                after.setdefault(queue_id, (each, offset))
    for reset in resets_of(case, replicas, group, topic):
        if abs(reset.wall_ms - at_ms) <= AROUND_MS:
            answer.witness(
                reset.wall_ms,
                reset.node,
                f"an operator ({reset.peer}) reset group {group} in topic {topic}",
            )
    _explain_set_back(answer, history, topic, group, at_ms)
    if not queues or queues.keys() - before.keys():
        return False
    least = most = 0
    for queue_id in queues:
        state, offset = before[queue_id]
        later = offset if state.is_exact else after.get(queue_id, (state, offset))[1]
        left = [
            _stored_until(case, replicas, topic, queue_id, each, at_ms)["left_over"]
            for each in {offset, later}
        ]
        least, most = least + min(left), most + max(left)
        for state, offset in (before[queue_id], *([after[queue_id]] if queue_id in after else ())):
            answer.witness(
                state.wall_ms,
                state.source,
                f"group {group}, topic {topic}, queue {queue_id}: committed offset {offset}",
            )
    newest = max((each[0] for each in before.values()), key=lambda each: each.wall_ms)
    amount = count_of(most, "message")
    if least != most:
        amount = f"between {least:,} and {amount}"
    known = (
        "the log tells each commit"
        if newest.is_exact
        else f"its offsets were sampled {say_ms(at_ms - newest.wall_ms)} earlier"
    )
    answer.conclude("lag", f"Of topic {topic} the group lacked {amount} then: {known}.")
    if newest.is_exact:
        answer.admit("A commit is in the log when the leader took it, by the leader's clock.")
    else:
        answer.admit("Journals sample offsets ten seconds apart, and only while they move.")
    return True


def _explain_set_back(
    answer: Explanation, history: Sequence[OffsetsAt], topic: str, group: str, at_ms: int
) -> None:
    """Say when the group's offsets moved backwards around the time."""
    stood: dict[int, int] = {}
    for each in history:
        for queue_id, offset in each.offsets.items():
            was = stood.get(queue_id, offset)
            stood[queue_id] = offset
            if offset < was and abs(each.wall_ms - at_ms) <= AROUND_MS:
                answer.conclude(
                    "set back",
                    f"Group {group} was set back in topic {topic}, queue {queue_id}, from offset "
                    f"{was} to {offset} by {say_time(each.wall_ms)}: it received "
                    f"{count_of(was - offset, 'message')} again.",
                )


def _stored_until(
    case: Case,
    replicas: Sequence[StoreFiles],
    topic: str,
    queue_id: int,
    offset: int,
    at_ms: int,
) -> dict[str, Any]:
    """Messages of a queue up to a time, and those of them at or behind an offset."""
    is_left = f"queue_offset >= {offset}"
    (row,) = case.engine.query(
        "SELECT COUNT(DISTINCT queue_offset) AS stored, "
        f"COUNT(DISTINCT CASE WHEN {is_left} THEN queue_offset END) AS left_over, "
        f"MIN(CASE WHEN {is_left} THEN store_ms END) AS oldest_ms FROM commitlog "
        f"WHERE store IN {literals([store.label for store in replicas])} "
        f"AND topic = {literal(topic)} AND queue_id = {queue_id} AND store_ms <= {at_ms}"
    )
    return row


def _explain_samples(
    case: Case,
    answer: Explanation,
    replicas: Sequence[StoreFiles],
    topic: str,
    group: str,
    at_ms: int,
) -> None:
    """Add the samples on both sides of the time."""
    samples = samples_of(case, case.brokers_of(replicas[0].label), group, topic)
    before = [sample for sample in samples if sample.wall_ms <= at_ms][-1:]
    after = [sample for sample in samples if sample.wall_ms > at_ms][:1]
    for sample in [*before, *after]:
        answer.witness(
            sample.wall_ms,
            sample.node,
            f"group {group} lacked {count_of(sample.lag, 'message')} of topic {topic} "
            f"(offsets {sample.consumer_offset} of {sample.broker_offset})",
        )
    if before:
        answer.conclude(
            "lag",
            f"Of topic {topic} the group lacked {count_of(before[0].lag, 'message')} at the last "
            f"sample, {say_ms(at_ms - before[0].wall_ms)} earlier.",
        )
    else:
        answer.admit(f"No journal has a sample of the group in topic {topic} from before.")
    answer.admit(
        "Stores keep the newest committed offset alone: how far the group was in each queue at "
        "that time is not known."
    )


def _explain_failures(
    case: Case, answer: Explanation, replicas: Sequence[StoreFiles], group: str, at_ms: int
) -> bool:
    """Count what the group had sent back until then; return whether there is any at all."""
    offsets = committed_offsets(case, replicas)
    found = case.engine.query(
        "SELECT DISTINCT topic FROM commitlog_stats "
        f"WHERE {has_prefix('topic', RETRY_PREFIX)} OR topic = {literal(dlq_topic(group))}"
    )
    topics = [
        row["topic"]
        for row in found
        if row["topic"] == dlq_topic(group) or group_of_retry(row["topic"], offsets) == group
    ]
    if not topics:
        return False
    rows = case.engine.query(
        "SELECT topic, COUNT(DISTINCT phy_offset) AS found, "
        f"COUNT(DISTINCT CASE WHEN store_ms <= {at_ms} THEN phy_offset END) AS earlier, "
        f"MAX(CASE WHEN store_ms <= {at_ms} THEN store_ms END) AS last_ms FROM commitlog "
        f"WHERE store IN {literals([store.label for store in replicas])} "
        f"AND topic IN {literals(topics)} GROUP BY topic"
    )
    for row in rows:
        if row["earlier"]:
            is_dead = row["topic"] == dlq_topic(group)
            answer.conclude(
                "dead letter" if is_dead else "retried",
                f"{count_of(row['earlier'], 'message')} had come into {row['topic']} until then, "
                f"the last {say_time(row['last_ms'])}.",
            )
    return bool(rows)

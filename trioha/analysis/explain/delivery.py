"""Delivery of a message to each consumer group, as far as the group's offsets tell."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from trioha.analysis.explain.case import Case
from trioha.analysis.explain.explanation import Explanation, VerdictCode
from trioha.analysis.explain.offset_history import (
    OffsetsAt,
    Reset,
    offset_history,
    resets_of,
)
from trioha.analysis.explain.popping import (
    LATE_MS,
    explain_popping,
    groups_that_popped,
    stores_with_rocksdb,
)
from trioha.analysis.explain.progress import (
    Committed,
    Consumption,
    Offsets,
    committed_offsets,
    consumption_of,
    samples_of,
)
from trioha.analysis.explain.records import (
    StoredRecord,
    groups_of,
    is_dead_letter_of,
)
from trioha.analysis.explain.surroundings import blame_outages
from trioha.analysis.reports.words import count_of, say_ms, say_time
from trioha.wire.names import retry_topic

GROUPS_MAX = 10
_OFFSETS = (
    "A committed offset says that a group has passed a message. A reset, a filter and a consumer "
    "that acknowledges before it works look the same."
)
_NOT_KEPT = " When each offset was committed is not kept."
_SAMPLED = " Journals sample the offsets, ten seconds apart while they move."
_IN_LOG = " The log tells when each offset was committed, by the leader's clock."


def explain_delivery(
    case: Case,
    answer: Explanation,
    records: Sequence[StoredRecord],
    about: str,
    wanted: str | None,
) -> int:
    """Explain what the groups have done; return the last moment that matters, in ms since 1970."""
    end_ms = max(record.store_ms for record in records)
    end_ms = max([end_ms, *(case.cuts[cut][1].wall_ms for each in records for cut in each.cuts)])
    seen = [record for record in records if record.is_seen and record.stores]
    labels = dict.fromkeys(label for record in records for label in record.stores)
    stores = {store.label: store for label in labels for store in case.replicas_of(label)}
    offsets = committed_offsets(case, list(stores.values()))
    sent_back_by = groups_of(records)
    groups = {group for topic, group in offsets if any(topic == each.topic for each in seen)}
    groups |= sent_back_by
    if not groups or (wanted is not None and wanted not in groups):
        groups = groups.union(*(groups_that_popped(case, answer, record) for record in seen))
    if wanted is not None:
        if wanted not in groups and seen:
            answer.conclude(
                "no offset",
                f"{about}Group {wanted} has committed no offset in topic {seen[0].topic}: nothing "
                "shows that it consumed from the topic.",
            )
        groups &= {wanted}
    elif seen and not groups:
        answer.conclude(
            "no offset",
            f"{about}No group has committed an offset in topic {seen[0].topic}: nothing shows that "
            "it was consumed.",
        )
    if len(groups) > GROUPS_MAX:
        answer.admit(f"{len(groups)} groups read the topic; --group explains any one of them.")
    for group in sorted(groups, key=lambda group: (group not in sent_back_by, group))[:GROUPS_MAX]:
        if group in sent_back_by:
            last_ms = _explain_redelivery(case, answer, records, offsets, group, about)
            end_ms = max(end_ms, last_ms)
        else:
            for record in seen:
                passing = _Passing(case, answer, record, group, about)
                end_ms = max(end_ms, passing.explain(offsets))
    return end_ms


def _explain_redelivery(
    case: Case,
    answer: Explanation,
    records: Sequence[StoredRecord],
    offsets: Offsets,
    group: str,
    about: str,
) -> int:
    """Explain a message that came to a group again; return the last moment known of its pops."""
    retries = [record for record in records if record.retry_group == group]
    delivered = [record for record in retries if record.kind == "retry"]
    first = next((record for record in records if record.is_seen and record.stores), None)
    last_ms = 0
    if first is not None:
        last_ms = explain_popping(case, answer, first, group, about) or 0
    dead = [record for record in records if is_dead_letter_of(record, group)]
    if delivered:
        times = ", ".join(say_time(record.store_ms) for record in delivered)
        pops = delivered[0].topic != retry_topic(group)
        why = "did not acknowledge it in time" if pops else "sent it back"
        answer.conclude(
            "retried",
            f"{about}Group {group} {why}: it came again {count_of(len(delivered), 'time')} "
            f"through {delivered[0].topic} ({times}).",
        )
    if dead:
        failed = dead[0].row["reconsume_times"]
        answer.conclude(
            "dead letter",
            f"{about}It is in the dead letters of group {group} since "
            f"{say_time(dead[0].store_ms)}, after {count_of(failed, 'redelivery')} that failed "
            f"({dead[0].place}). The group does not receive it again by itself.",
        )
        return last_ms
    last = retries[-1]
    if last.kind == "retry" and last.stores:
        popped_ms = explain_popping(case, answer, last, group, about, "its redelivery")
        if popped_ms is not None:
            return popped_ms
        if last.topic != retry_topic(group) and stores_with_rocksdb(case, last):
            return last_ms
    answer.admit(_OFFSETS)
    if last.kind == "waits for retry":
        answer.conclude(
            "in retry",
            f"{about}Group {group} has sent it back {say_time(last.store_ms)}; it waits in "
            f"{last.place} for its next delivery.",
        )
        return last_ms
    committed = offsets.get((last.topic, group), {}).get(last.queue_id)
    if committed is not None and committed.offset > last.queue_offset:
        answer.conclude(
            "consumed",
            f"{about}Group {group} has passed it after {count_of(len(delivered), 'redelivery')}: "
            f"committed offset {committed.offset} in {last.topic}, queue {last.queue_id}.",
        )
    else:
        answer.conclude(
            "in retry",
            f"{about}Group {group} has not passed its last redelivery yet ({last.place}).",
        )
    return last_ms


@attrs.frozen
class _Passing:
    """A message that a group never sent back, and how far the group's offset has come."""

    case: Case
    answer: Explanation
    record: StoredRecord
    group: str
    about: str

    def explain(self, offsets: Offsets) -> int:
        """Explain it; return the last moment known."""
        case, record, group = self.case, self.record, self.group
        popped_ms = explain_popping(case, self.answer, record, group, self.about)
        if popped_ms is not None:
            return max(record.store_ms, popped_ms)
        queues = offsets.get((record.topic, group), {})
        committed = queues.get(record.queue_id)
        if committed is None:
            self._conclude(
                "no offset",
                f"reads topic {record.topic} and has committed nothing in queue {record.queue_id}.",
            )
            return record.store_ms
        replicas = case.replicas_of(record.stores[0])
        history = offset_history(case, replicas, group, record.topic, {record.queue_id})
        samples = samples_of(case, case.brokers_of(record.stores[0]), group, record.topic)
        found = consumption_of(
            *(history, samples, record.store_ms, record.queue_id, record.queue_offset, len(queues))
        )
        resets = resets_of(case, replicas, group, record.topic)
        _admit_precision(self.answer, history)
        self._tell_progress(history, found, resets)
        last_ms = found.passes[-1].by_ms if found.passes else committed.written_ms
        last_ms = max([last_ms or record.store_ms, *found.set_back_by_ms])
        stated = self._stated(committed)
        if committed.offset <= record.queue_offset:
            self._conclude("not consumed", f"has not consumed it: {stated}.")
            self._blame(last_ms, f"while group {group} had yet to read")
        elif found.skipped_ms is not None and not found.passes:
            self._conclude(
                "skipped",
                f"has skipped it: {say_time(found.skipped_ms)}, before it was stored, the group "
                f"stood beyond queue offset {record.queue_offset} already.",
            )
        else:
            when = f" {found.passes[0]}" if found.passes else ""
            comma = "," if when.startswith(" by") else ""
            self._conclude("consumed", f"has consumed it{comma}{when}: {stated}.")
            self._explain_resets(found, resets)
            waited_ms = _waited_ms(found, record.store_ms)
            if waited_ms >= LATE_MS:
                self._conclude(
                    "consumed late",
                    f"consumed it late: {say_ms(waited_ms)} after it was stored it had not.",
                )
                self._blame(last_ms, f"between its storing and its consumption by {group}")
        self._explain_set_back(found, resets)
        return max(record.store_ms, last_ms)

    def _conclude(self, code: VerdictCode, text: str) -> None:
        self.answer.conclude(code, f"{self.about}Group {self.group} {text}")

    def _blame(self, until_ms: int, when: str) -> None:
        blame_outages(self.case, self.answer, self.record, self.record.store_ms, until_ms, when)

    def _stated(self, committed: Committed) -> str:
        """The committed offset in words."""
        record, written = self.record, ""
        if committed.written_ms is not None:
            written = f" (file of {committed.store}, written {say_time(committed.written_ms)})"
            self.answer.witness(
                committed.written_ms,
                committed.store,
                f"consumerOffset.json was written: {self._place}: offset {committed.offset}",
            )
        return (
            f"its committed offset in queue {record.queue_id} is {committed.offset}{written}, the "
            f"message's is {record.queue_offset}"
        )

    @property
    def _place(self) -> str:
        record = self.record
        return f"group {self.group}, topic {record.topic}, queue {record.queue_id}"

    def _tell_progress(
        self, history: Sequence[OffsetsAt], found: Consumption, resets: Sequence[Reset]
    ) -> None:
        """Add the offsets between which the group passed the message, and resets, as evidence."""
        record, witness = self.record, self.answer.witness
        times = {each for one in found.passes for each in (one.after_ms, one.by_ms)}
        times |= {found.not_before_ms, *found.set_back_by_ms}
        for each in history:
            if each.wall_ms in times:
                offset = each.offsets[record.queue_id]
                witness(each.wall_ms, each.source, f"{self._place}: committed offset {offset}")
        passed = f"passed queue offset {record.queue_offset}"
        if not history:
            if found.not_before_ms is not None:
                text = f"group {self.group} had not {passed} yet"
                witness(found.not_before_ms, "journal", text)
            for one in found.passes:
                witness(one.by_ms, "journal", f"group {self.group} had {passed}")
        for reset in resets:
            if (offset := reset.offsets.get(record.queue_id, -1)) >= 0:
                text = f"an operator ({reset.peer}) reset {self._place} to offset {offset}"
                witness(reset.wall_ms, reset.node, text)

    def _explain_resets(self, found: Consumption, resets: Sequence[Reset]) -> None:
        """Say which reset took the group over the message: it may never have received it."""
        record = self.record
        for one in found.passes:
            begin_ms = record.store_ms if one.after_ms is None or one.is_exact else one.after_ms
            for reset in resets:
                offset = reset.offsets.get(record.queue_id, -1)
                if offset > record.queue_offset and begin_ms <= reset.wall_ms <= one.by_ms:
                    self.answer.conclude(
                        "skipped by a reset",
                        f"{self.about}An operator ({reset.peer}) reset group {self.group} "
                        f"{say_time(reset.wall_ms)} to offset {offset}, beyond it: the group "
                        "received it only if it had come to it before that.",
                    )

    def _explain_set_back(self, found: Consumption, resets: Sequence[Reset]) -> None:
        """Say that the group had the message before it and behind it, and so received it again."""
        record = self.record
        for by_ms in found.set_back_by_ms:
            asked = [
                reset
                for reset in resets
                if reset.wall_ms <= by_ms
                and reset.offsets.get(record.queue_id, record.queue_offset + 1)
                <= record.queue_offset
            ]
            why = f" An operator ({asked[-1].peer}) asked for it." if asked else ""
            again = [one for one in found.passes if one.by_ms > by_ms]
            then = f"; it passed it again {again[0]}" if again else ", and has not passed it since"
            self._conclude(
                "set back",
                f"had passed it and was set back before it by {say_time(by_ms)}: it receives the "
                f"message again{then}.{why}",
            )


def _waited_ms(found: Consumption, store_ms: int) -> int:
    """Return how long the group certainly had not consumed a message."""
    until_ms = found.passes[0].after_ms if found.passes else found.not_before_ms
    return 0 if until_ms is None else until_ms - store_ms


def _admit_precision(answer: Explanation, history: Sequence[OffsetsAt]) -> None:
    if not history:
        answer.admit(_OFFSETS + _NOT_KEPT)
    elif history[0].is_exact:
        answer.admit(_OFFSETS + _IN_LOG)
    else:
        answer.admit(_OFFSETS + _SAMPLED)

"""Records of one message, each once, however many replicas hold it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from trioha.analysis.explain.case import Case
from trioha.analysis.explain.progress import committed_offsets
from trioha.analysis.reports.retry_groups import group_of_retry
from trioha.wire.names import (
    TIMER_TOPIC,
    TRANS_CHECK_MAX_TIME_TOPIC,
    dlq_topic,
    is_dlq_topic,
    is_retry_topic,
)
from trioha.wire.properties import Property

_SEEN_KINDS = frozenset({"stored", "committed", "delivered after delay"})
_FIRST_POP_TIME = "1ST_POP_TIME"
"""Property of a message that is delivered again because a pop was not acknowledged."""
_HIDDEN_TOPICS = frozenset({TIMER_TOPIC, TRANS_CHECK_MAX_TIME_TOPIC})


@attrs.define(eq=False)
class StoredRecord:
    """One record of one broker. `row` is a hop of `trioha.analysis.reports.hops`."""

    row: Mapping[str, Any]
    stores: list[str] = attrs.field(factory=list)
    """Labels of stores whose logs hold it."""
    cuts: list[str] = attrs.field(factory=list)
    """Labels of cuts that hold it."""
    retry_group: str = ""
    """Group that the record redelivers to, or waits for; empty for another record."""

    @property
    def kind(self) -> str:
        return str(self.row["kind"])

    @property
    def topic(self) -> str:
        return str(self.row["topic"])

    @property
    def queue_id(self) -> int:
        return int(self.row["queue_id"])

    @property
    def queue_offset(self) -> int:
        return int(self.row["queue_offset"])

    @property
    def phy_offset(self) -> int:
        return int(self.row["phy_offset"])

    @property
    def store_ms(self) -> int:
        return int(self.row["store_ms"])

    @property
    def born_ms(self) -> int:
        return int(self.row["born_ms"])

    @property
    def is_seen(self) -> bool:
        """Consumers of the message's own topic receive this record."""
        return self.kind in _SEEN_KINDS and self.topic not in _HIDDEN_TOPICS

    @property
    def is_given_up(self) -> bool:
        """The record is a half message that was checked too often."""
        return self.topic == TRANS_CHECK_MAX_TIME_TOPIC

    @property
    def is_timer(self) -> bool:
        return self.topic == TIMER_TOPIC and not self.is_recall

    @property
    def is_recall(self) -> bool:
        """The record takes a timer message back."""
        return self.topic == TIMER_TOPIC and Property.TIMER_DEL_UNIQKEY in self.row["properties"]

    @property
    def retry_topic(self) -> str:
        """The topic that a redelivery is in, or waits for; the record's own topic for another."""
        return str(self.row["goes_to"] if self.kind == "waits for retry" else self.topic)

    @property
    def target(self) -> str:
        """The topic that the record is for."""
        return str(self.row["goes_to"] or self.row["properties"].get("REAL_TOPIC") or self.topic)

    @property
    def place(self) -> str:
        """Topic, queue and queue offset of the record, in words."""
        return f"topic {self.topic}, queue {self.queue_id}, queue offset {self.queue_offset}"


def records_of(case: Case, hops: Sequence[Mapping[str, Any]]) -> list[StoredRecord]:
    """Hops of one message, each record once, in the order they were stored."""
    found: dict[tuple[Any, ...], StoredRecord] = {}
    names = ("phy_offset", "store_ms", "store_host", "topic", "queue_id", "queue_offset")
    for hop in hops:
        record = found.setdefault(tuple(hop[name] for name in names), StoredRecord(hop))
        labels = record.cuts if hop["store"] in case.cuts else record.stores
        labels.append(hop["store"])
    records = sorted(found.values(), key=lambda record: (record.store_ms, record.phy_offset))
    offsets = committed_offsets(case, case.stores)
    own_topic = next((record.topic for record in records if record.is_seen), "")
    for record in records:
        topic = record.retry_topic
        if is_retry_topic(topic):
            popped = own_topic if _FIRST_POP_TIME in record.row["properties"] else ""
            origin = record.row["origin"] or popped
            record.retry_group = group_of_retry(topic, offsets, origin)
    return records


def is_dead_letter_of(record: StoredRecord, group: str) -> bool:
    return record.topic == dlq_topic(group)


def groups_of(records: Sequence[StoredRecord]) -> set[str]:
    """Groups that the message was sent back by."""
    found = set()
    for record in records:
        if record.retry_group:
            found.add(record.retry_group)
        elif is_dlq_topic(record.retry_topic):
            found.add(record.retry_topic.removeprefix(dlq_topic("")))
    return found

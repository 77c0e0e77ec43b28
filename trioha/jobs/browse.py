"""Reads on in the queues of a topic, as they are stored, filtered; with or without an end.

Theory of operation. Each round asks all queues that are not at their end for their next messages,
and hands on those that match, sorted by the time they were stored at. Without an end, one question
per broker (202) tells which queues have grown, and only those are read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import attrs

from trioha.errors import Unreachable
from trioha.failover.asking import Failed, Flow, pause
from trioha.jobs.cluster_map import read_map, silent_in_words
from trioha.jobs.messages import (
    FoundMessage,
    MessageList,
    ShownMessage,
    by_time,
    page_of,
    pull_question,
)
from trioha.jobs.telling import JobScope, NotThere, answered, ask_many, going_on
from trioha.jobs.topics import TopicQueue, addresses_of, existing_route, topic_queues
from trioha.wire.codes import RequestCode

_FOLLOW_PAUSE_S = 0.5


@attrs.frozen
class Wanted:
    """Selection of messages of a topic."""

    topic: str
    queues: Sequence[tuple[str, int]] = ()
    """(broker, queue id); none for all."""
    begin_ms: int | None = None
    """Earliest store time, in milliseconds since 1970; None for the first message there is."""
    from_end: bool = False
    """Only messages that arrive from now on are wanted."""
    offset: int | None = None
    """Offset to begin at in each queue; None: `begin_ms` decides."""
    tags: str = "*"
    """Tags as consumers write them: ``A || B``."""
    key: str = ""
    body: re.Pattern[bytes] | None = None
    """Pattern that is searched for in the body."""

    def matches(self, one: FoundMessage) -> bool:
        """Return whether tags, key and body fit: a broker may send tags with the same hash."""
        names = {name.strip() for name in self.tags.split("||")}
        if self.tags != "*" and (one.record.tags or "") not in names:
            return False
        if self.begin_ms is not None and one.record.store_timestamp < self.begin_ms:
            return False
        if self.key and self.key not in one.record.keys:
            return False
        return self.body is None or self.body.search(one.body) is not None


def browse(
    scope: JobScope,
    wanted: Wanted,
    on_message: Callable[[FoundMessage], None],
    *,
    count: int | None = None,
    follow: bool = False,
) -> Flow[int]:
    """Hand matching messages to `on_message`; return how many. `follow` ends only at `count`.

    Errors: NotThere, Unreachable, CommandError.
    """
    addresses = addresses_of((yield from existing_route(scope, wanted.topic)))
    ends = yield from topic_queues(scope, wanted.topic, addresses)
    queues = choose(ends, wanted.topic, wanted.queues)
    at = yield from _beginnings(scope, wanted, queues, addresses)
    until = {(one.broker, one.queue_id): one.max_offset for one in queues}
    found = 0
    while True:
        left = [one for one in queues if at[place(one)] < until[place(one)]]
        if not left and not follow:
            return found
        if not left:
            yield from pause(_FOLLOW_PAUSE_S)
            for one in (yield from topic_queues(scope, wanted.topic, addresses)):
                if place(one) in until:
                    until[place(one)] = one.max_offset
            continue
        replies = yield from ask_many(
            [
                pull_question(
                    scope, addresses[one.broker], wanted.topic, one, at[place(one)], wanted.tags
                )
                for one in left
            ]
        )
        batch: list[FoundMessage] = []
        for one, reply in zip(left, replies, strict=True):
            if isinstance(reply, Failed) and scope.silent is not None:
                at[place(one)] = until[place(one)]
                continue
            page = page_of(addresses[one.broker], one.broker, reply)
            end = until[place(one)]
            batch += [each for each in page.messages if each.record.queue_offset < end]
            # A gap in the log answers with where to go on; standing still would never end.
            at[place(one)] = max(page.next_offset, at[place(one)] + (not page.messages))
        for message in by_time([one for one in batch if wanted.matches(one)]):
            on_message(message)
            found += 1
            if found == count:
                return found


def place(queue: TopicQueue) -> tuple[str, int]:
    return queue.broker, queue.queue_id


def choose(
    ends: Sequence[TopicQueue], topic: str, queues: Sequence[tuple[str, int]]
) -> list[TopicQueue]:
    """Return the queues that are named, or all. Errors: NotThere."""
    there = {place(one): one for one in ends}
    for broker, queue_id in queues:
        if (broker, queue_id) not in there:
            shown = ", ".join(f"{name}:{number}" for name, number in sorted(there))
            raise NotThere(f"{topic} has no queue {broker}:{queue_id}; its queues are: {shown}")
    return [there[one] for one in queues] if queues else list(ends)


def _beginnings(
    scope: JobScope, wanted: Wanted, queues: Sequence[TopicQueue], addresses: dict[str, str]
) -> Flow[dict[tuple[str, int], int]]:
    if wanted.from_end:
        return {place(one): one.max_offset for one in queues}
    if wanted.offset is not None:
        return {place(one): max(one.min_offset, wanted.offset) for one in queues}
    if wanted.begin_ms is None:
        return {place(one): one.min_offset for one in queues}
    code = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    replies = yield from ask_many(
        [
            scope.ask(
                addresses[one.broker],
                code,
                {"topic": wanted.topic, "queueId": one.queue_id, "timestamp": wanted.begin_ms},
            )
            for one in queues
        ]
    )
    begins = {}
    for one, reply in zip(queues, replies, strict=True):
        if isinstance(reply, Failed) and scope.silent is not None:
            begins[place(one)] = one.max_offset
            continue
        offset = int(answered(addresses[one.broker], reply).ext_fields["offset"])
        begins[place(one)] = max(offset, one.min_offset)
    return begins


@going_on
def list_messages(
    scope: JobScope, wanted: Wanted, *, count: int | None = None
) -> Flow[MessageList]:
    """Return matching messages, `count` at most, of the brokers that answer.

    Errors: NotThere, CommandError; Unreachable when no broker answers.
    """
    found: list[ShownMessage] = []
    try:
        yield from browse(scope, wanted, lambda one: found.append(one.show()), count=count)
    except NotThere as error:
        if scope.silent:  # the queue that is named may be there
            raise Unreachable("; ".join([str(error), *scope.silent.values()])) from error
        raise
    return MessageList(found, silent_in_words(scope, (yield from read_map(scope))))

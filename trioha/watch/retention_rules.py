"""The alert rule for groups that lose messages, because a broker deletes them before they are read.

A broker deletes a segment of its log once it was last written longer ago than fileReservedTime. A
message is therefore safe for that long after it was stored. A disk that is over its limit makes a
broker delete earlier: `disk_ratio` tells that.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from trioha.watch.queues import Group, QueueLag
from trioha.watch.rule import Reading
from trioha.watch.snapshot import ClusterSnapshot
from trioha.words import age_in_words

_CURE = "Start or add consumers, or raise fileReservedTime of {broker} (in its file; restart it)."


def read_retention(snapshot: ClusterSnapshot) -> Iterator[Reading]:
    for name, group in snapshot.groups.items():
        text = partial(retention_in_words, group)
        yield Reading("group_retention", name, group.retention_used, text)


def retention_in_words(group: Group) -> str:
    """Say what a group has lost or is about to lose, and the cure; "" if nothing is known."""
    queue = group.next_to_lose
    if queue is None:
        return ""
    if queue.lost:
        return _lost_in_words(group, queue)
    kept_s = queue.kept_s
    if kept_s is None or queue.reserved_s is None:
        return ""
    when = f"in {age_in_words(kept_s)}" if kept_s > 0 else "at any time"
    return (
        f"group {group.name} may lose messages of {queue.topic} {when}: the next one that it reads"
        f" in {queue.broker} queue {queue.queue_id} is"
        f" {age_in_words(queue.reserved_s - kept_s)} old, and {queue.broker} keeps messages for"
        f" {age_in_words(queue.reserved_s)}. {_CURE.format(broker=queue.broker)}"
    )


def _lost_in_words(group: Group, queue: QueueLag) -> str:
    others = sum(1 for one in group.queues if one.lost) - 1
    more = f" and {others} more queue{'' if others == 1 else 's'}" if others else ""
    return (
        f"group {group.name} has lost {group.lost} messages: they were deleted before it read them,"
        f" in {queue.topic}, {queue.broker} queue {queue.queue_id}{more}. It goes on at the oldest"
        f" message left. {_CURE.format(broker=queue.broker)} If nobody needs the group:"
        f" `trioha group delete {group.name}`."
    )

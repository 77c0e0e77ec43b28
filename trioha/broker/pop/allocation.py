"""Shares the queues of a topic out among the members of a group.

As AllocateMessageQueueAveragely.java, AllocateMessageQueueAveragelyByCircle.java and the rule for
POP of QueryAssignmentProcessor.java.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from trioha.wire.bodies import MessageQueue

Allocate = Callable[[Sequence[MessageQueue], int, int], list[MessageQueue]]


def averagely(queues: Sequence[MessageQueue], member_count: int, index: int) -> list[MessageQueue]:
    """Return neighbouring queues, as many for each member; the first members get one more."""
    share, more = divmod(len(queues), member_count)
    begin = index * share + min(index, more)
    return list(queues[begin : begin + share + (index < more)])


def by_circle(queues: Sequence[MessageQueue], member_count: int, index: int) -> list[MessageQueue]:
    """Return every n-th queue."""
    return list(queues[index::member_count])


STRATEGIES: Final[dict[str, Allocate]] = {"AVG": averagely, "AVG_BY_CIRCLE": by_circle}


def allocate_for_pop(
    allocate: Allocate,
    queues: Sequence[MessageQueue],
    member_count: int,
    index: int | None,
    share_queue_num: int,
) -> list[MessageQueue]:
    """Return the queues that a client pops from; queue -1 is every queue of its broker.

    With `share_queue_num` n, a member pops from its own queues and those of the next n members; a
    client that is no member (`index` None) from none.
    """
    if share_queue_num <= 0 or share_queue_num >= member_count - 1:
        return list(dict.fromkeys(attrs.evolve(queue, queue_id=-1) for queue in queues))
    if index is None:
        return []
    if member_count > len(queues):
        return [queues[index % len(queues)]]
    found: dict[MessageQueue, None] = {}
    for i in range(share_queue_num + 1):
        found.update(dict.fromkeys(allocate(queues, member_count, (index + i) % member_count)))
    return list(found)

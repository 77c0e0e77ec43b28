"""Queues of each group member (AllocateMessageQueueAveragely.java, MessageQueue.compareTo).

Theory of operation. No node assigns queues: every member sorts the same queues and the same client
ids in the same way, and takes its own share. So the order is part of the protocol. Java compares
strings by UTF-16 units, Python by code points; they differ above U+FFFF, hence `_java_order`.
Shares are contiguous runs; the first members get one more when the division leaves a rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trioha.client.message import MessageQueue


def sort_queues(queues: Iterable[MessageQueue]) -> list[MessageQueue]:
    """Queues in the order every client of the group uses."""
    return sorted(
        queues,
        key=lambda queue: (
            _java_order(queue.topic),
            _java_order(queue.broker_name),
            queue.queue_id,
        ),
    )


def allocate_averagely(
    client_id: str, client_ids: Iterable[str], queues: Iterable[MessageQueue]
) -> list[MessageQueue]:
    """The share of `client_id`; nothing if it is not in the list (the broker forgot us)."""
    members = sorted(set(client_ids), key=_java_order)
    if client_id not in members:
        return []
    return _share(members.index(client_id), len(members), sort_queues(queues))


def _share(index: int, count: int, queues: Sequence[MessageQueue]) -> list[MessageQueue]:
    base, rest = divmod(len(queues), count)
    begin = index * base + min(index, rest)
    return list(queues[begin : begin + base + (index < rest)])


def _java_order(text: str) -> bytes:
    return text.encode("utf-16-be", "surrogatepass")

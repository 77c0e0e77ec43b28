"""Rows of consume queues."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from trioha.analysis.store_files import QueueFiles


@attrs.define(eq=False)
class QueueBatch:
    """Columns of `schema.CONSUMEQUEUE` without store, topic and queue_id, which are the queue's."""

    queue_offset: list[int]
    phy_offset: list[int]
    size: list[int]
    tags_code: list[int]


def scan_queue(queue: QueueFiles) -> Iterator[QueueBatch]:
    """The entries of a queue in order, without padding and up to the last written one."""
    raise NotImplementedError

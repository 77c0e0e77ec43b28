"""Rows of consume queues: 20 bytes per entry, ``phyOffset i64 | size i32 | tagsCode i64``.

Entries whose size is 0 are space not yet written (or a hole), those of a size no record has are
padding in a queue that does not begin at 0; neither is a row. Gaps show in `queue_offset`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import compress

import attrs

from trioha.analysis.log_source import FileSource
from trioha.analysis.schema import AnalysisError
from trioha.analysis.store_files import QueueFiles
from trioha.store.consume_queue import ENTRY, PADDING_SIZE

_BATCH_ENTRIES = 16_384


@attrs.define(eq=False)
class QueueBatch:
    """Columns of `schema.CONSUMEQUEUE` without store, topic and queue_id, which are the queue's."""

    queue_offset: list[int]
    phy_offset: list[int]
    size: list[int]
    tags_code: list[int]


def scan_queue(queue: QueueFiles) -> Iterator[QueueBatch]:
    """The entries of a queue in order, without padding and what is not written.

    Errors: AnalysisError when a file cannot be read.
    """
    for file_offset, path in queue.files:
        try:
            with FileSource(path) as source:
                data_end = source.data_end()
                for position in range(0, data_end, _BATCH_ENTRIES * ENTRY.size):
                    data = source.read(position, _BATCH_ENTRIES * ENTRY.size)
                    data = data[: len(data) - len(data) % ENTRY.size]
                    if any(data):
                        yield _batch_of(data, (file_offset + position) // ENTRY.size)
        except FileNotFoundError:
            continue  # its records have expired meanwhile
        except OSError as error:
            raise AnalysisError(f"cannot read {path}: {error.strerror}") from None


def _batch_of(data: bytes, first_index: int) -> QueueBatch:
    phy_offsets, sizes, tags_codes = zip(*ENTRY.iter_unpack(data), strict=True)
    mask = [0 < size < PADDING_SIZE for size in sizes]
    return QueueBatch(
        list(compress(range(first_index, first_index + len(mask)), mask)),
        list(compress(phy_offsets, mask)),
        list(compress(sizes, mask)),
        list(compress(tags_codes, mask)),
    )

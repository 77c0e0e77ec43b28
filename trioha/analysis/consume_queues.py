"""Rows of consume queues: 20 bytes per entry, ``phyOffset i64 | size i32 | tagsCode i64``.

Entries whose size is 0 are space not yet written (or a hole), those of a size no record has are
padding in a queue that does not begin at 0; neither is a row. Gaps show in `queue_offset`.
"""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np
from numpy.typing import NDArray

from trioha.analysis.open_source import open_source
from trioha.analysis.schema import AnalysisError
from trioha.analysis.store_files import QueueFiles
from trioha.store.consume_queue import ENTRY, PADDING_SIZE

_BATCH_ENTRIES = 65_536
_ENTRY = np.dtype([("phy_offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])


@attrs.define(eq=False)
class QueueBatch:
    """Columns of `schema.CONSUMEQUEUE` without store, topic and queue_id, which are the queue's."""

    queue_offset: NDArray[np.int64]
    phy_offset: NDArray[np.int64]
    size: NDArray[np.int32]
    tags_code: NDArray[np.int64]


def scan_queue(queue: QueueFiles) -> Iterator[QueueBatch]:
    """The entries of a queue in order, without padding and what is not written.

    Errors: AnalysisError when a file cannot be read.
    """
    for file_offset, path in queue.files:
        try:
            with open_source(path) as source:
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
    entries = np.frombuffer(data, _ENTRY)
    sizes = entries["size"].astype(np.int32)
    mask = (sizes > 0) & (sizes < PADDING_SIZE)
    return QueueBatch(
        np.flatnonzero(mask) + first_index,
        entries["phy_offset"].astype(np.int64)[mask],
        sizes[mask],
        entries["tags_code"].astype(np.int64)[mask],
    )

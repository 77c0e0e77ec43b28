"""Rows of a commitlog: `scan_split` walks a range of a segment and yields batches of columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import attrs

from trioha.analysis.store_files import CorruptRow, LogSplit

Detail = Literal["headers", "full"]


@attrs.frozen(kw_only=True)
class ScanFilter:
    """Which records are wanted; all conditions hold at once, ranges are half open. Exact."""

    topics: frozenset[str] | None = None
    queue_ids: frozenset[int] | None = None
    store_ms_from: int | None = None
    store_ms_to: int | None = None
    phy_offset_from: int | None = None
    phy_offset_to: int | None = None


@attrs.define(eq=False)
class RowBatch:
    """Up to about 16 thousand rows. A column costs only when it is asked for."""

    row_count: int
    corrupt: list[CorruptRow]
    bytes_done: int
    """Bytes of the log that this batch was made from, rows or not: for progress."""

    def column(self, name: str) -> list[Any]:
        """Values of one column of `schema.COMMITLOG`, or COMMITLOG_FULL in a full scan."""
        raise NotImplementedError

    def rows(self, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """The same as tuples."""
        return zip(*[self.column(name) for name in names], strict=True)


def scan_split(
    split: LogSplit, *, columns: Detail = "headers", filters: ScanFilter | None = None
) -> Iterator[RowBatch]:
    """Rows of the records that begin in the split, and its damaged stretches.

    Errors: AnalysisError when the file cannot be read; damage is never an error.
    """
    raise NotImplementedError

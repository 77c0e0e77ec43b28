"""The files of a store as they lie on disk, read-only, in use or not, whoever wrote them."""

from __future__ import annotations

from pathlib import Path

import attrs

SPLIT_BYTES = 64 << 20


@attrs.frozen
class CorruptRow:
    """A stretch of a log that is no sound record: a row of `schema.COMMITLOG_CORRUPT`."""

    store: str
    segment: str
    phy_offset: int
    length: int
    reason: str


@attrs.frozen
class Segment:
    """One file of the log."""

    path: str
    from_offset: int
    size: int
    data_end: int
    """Position behind which the file is a hole. At most `size`."""
    is_dledger: bool


@attrs.frozen
class LogSplit:
    """A range of one segment; who scans it emits the records that begin in it. Pickles."""

    store: str
    segment: Segment
    begin: int
    end: int
    """Positions in the file."""


@attrs.frozen
class QueueFiles:
    """One consume queue: its files by the byte offset in their names."""

    topic: str
    queue_id: int
    files: tuple[tuple[int, str], ...]


@attrs.define(eq=False)
class StoreFiles:
    """A store, opened. It is a snapshot: records written later are not in its splits."""

    label: str
    root: Path | None
    """None when only the log was given."""
    segments: list[Segment]
    gaps: list[CorruptRow]
    """Missing segments between those that are there. `scan_split` reports them as well."""

    def splits(self, bytes_max: int = SPLIT_BYTES) -> list[LogSplit]:
        raise NotImplementedError

    def consume_queues(self) -> list[QueueFiles]:
        raise NotImplementedError

    def consumer_offsets(self) -> dict[tuple[str, str], dict[int, int]]:
        """(topic, group) -> queue id -> next offset."""
        raise NotImplementedError

    def topics(self) -> dict[str, dict[str, object]]:
        """Name -> what config/topics.json says of it."""
        raise NotImplementedError

    def delay_offsets(self) -> dict[int, int]:
        """Delay level -> next offset of its queue."""
        raise NotImplementedError


def open_store(path: str | Path) -> StoreFiles:
    """The store at `path`: a broker's storePathRootDir, or only a directory of segments.

    Errors: AnalysisError when it is not a store or cannot be read.
    """
    raise NotImplementedError

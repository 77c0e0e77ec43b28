"""Deletes the oldest segments of a log when `retention` says so and nobody needs them any more."""

from __future__ import annotations

from collections.abc import Callable

import attrs

from trioha.errors import DiskFull
from trioha.journal import EventSink
from trioha.store.commitlog import CommitLog
from trioha.store.retention import ClosedSegment, DiskUsage, expired_count
from trioha.store.store_config import StoreConfig


@attrs.frozen
class Retention:
    """The say of a group's log in what is deleted."""

    floor: int
    """Segments that reach beyond this offset stay, however full the disk is."""
    before_delete: Callable[[int], None]
    """Takes the offset at which the log will begin; what it saves is durable when it returns.

    Errors: StoreError, DiskFull; nothing is deleted then.
    """


class SegmentCleaner:
    """Deletion of expired segments, with each look at the disk."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        events: EventSink,
        save_extent: Callable[[int], None],
    ) -> None:
        """`save_extent` keeps how far queues go that may have no record left in the log."""
        self._save_extent = save_extent
        self._config = config
        self._log = log
        self._events = events
        self._at_any_hour = False

    def expire_soon(self) -> None:
        """Delete expired segments at any hour, from the next look until none is left."""
        self._at_any_hour = True

    def clean(
        self, usage: DiskUsage, recovery_offset: int, wall_ms: int, retention: Retention | None
    ) -> tuple[list[str], DiskUsage]:
        """Delete what is due and ends at or below `recovery_offset`; returns the files gone, and
        what is used then.

        Without `retention` a group's log keeps everything: nobody has said yet what is committed.
        Errors: StoreError of `Retention.before_delete`; nothing is deleted then.
        """
        files = self._log.files
        segments = []
        for file in files.files[:-1]:
            status = file.path.stat()
            segments.append(ClosedSegment(status.st_mtime_ns // 1_000_000, status.st_blocks * 512))
        count, reason = expired_count(
            self._config, segments, usage, wall_ms, at_any_hour=self._at_any_hour
        )
        # One look takes a few segments: an operator's request goes on until none is left.
        self._at_any_hour = self._at_any_hour and count > 0
        # Segments that recovery reads again must stay.
        limit = recovery_offset
        if retention is not None:
            limit = min(limit, retention.floor)
        elif self._config.is_dledger:
            limit = 0
        going = [file for file in files.files[:count] if file.end_offset <= limit]
        if not going or not self._may_delete(retention, going[-1].end_offset):
            return [], usage
        self._save_extent(recovery_offset)
        gone = []
        for segment in segments[: len(going)]:
            file = files.drop_first()
            usage = usage.without(segment.allocated_bytes)
            self._events.event("segment_deleted", file=str(file.path), reason=reason)
            gone.append(str(file.path))
        return gone, usage

    def _may_delete(self, retention: Retention | None, min_offset: int) -> bool:
        if retention is None:
            return True
        try:
            retention.before_delete(min_offset)
        except DiskFull as error:
            self._events.event("segments_kept", to_offset=min_offset, reason=str(error))
            return False
        return True

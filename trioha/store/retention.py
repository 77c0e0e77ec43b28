"""Segments that may go, and a disk that is too full to write (CleanCommitLogService).

A segment goes at the hours of deleteWhen, or at any hour once the disk is over
diskMaxUsedSpaceRatio or an operator asked, if it was last written longer ago than
fileReservedTime. Over 85 %, or over diskMaxUsedSpaceRatio if that is set higher, segments go
without regard to their age, oldest first, until the disk is below again. Over the warning level
nothing is written. The last segment always stays.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import attrs

from trioha.store.store_config import StoreConfig

FORCED_RATIO = 0.85
"""diskSpaceCleanForciblyRatio of RocketMQ: age no longer protects a segment."""
DELETE_COUNT_MAX = 10
"""Segments deleted by one look at the disk; unmapping a gigabyte takes milliseconds."""


@attrs.frozen
class DiskUsage:
    """Usage of the file system that holds the log, as `df` counts."""

    used_bytes: int
    total_bytes: int
    """Size of the file system without the blocks reserved for root."""

    @property
    def ratio(self) -> float:
        return self.used_bytes / self.total_bytes if self.total_bytes else 0.0

    def without(self, gone_bytes: int) -> DiskUsage:
        return DiskUsage(max(0, self.used_bytes - gone_bytes), self.total_bytes)


def measure_disk(path: Path) -> DiskUsage:
    """Errors: OSError."""
    status = os.statvfs(path)
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    return DiskUsage(used, used + status.f_bavail * status.f_frsize)


@attrs.frozen
class ClosedSegment:
    """Facts about a closed segment on which retention decides."""

    modified_ms: int
    allocated_bytes: int


def expired_count(
    config: StoreConfig,
    segments: list[ClosedSegment],
    usage: DiskUsage,
    wall_ms: int,
    *,
    at_any_hour: bool = False,
) -> tuple[int, str]:
    """Return how many of the oldest segments go now, and why."""
    is_hour = at_any_hour or time.localtime(wall_ms / 1000).tm_hour in config.delete_hours
    count = 0
    reason = ""
    for segment in segments[:DELETE_COUNT_MAX]:
        forced = usage.ratio > max(FORCED_RATIO, config.disk_max_used_ratio)
        is_due = is_hour or usage.ratio > config.disk_max_used_ratio
        is_expired = wall_ms - segment.modified_ms >= config.reserved_ms
        if not forced and not (is_due and is_expired):
            break
        reason = "expired" if is_expired else f"disk {usage.ratio:.0%} full"
        usage = usage.without(segment.allocated_bytes)
        count += 1
    return count, reason

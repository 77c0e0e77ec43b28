"""End of a log's last complete record, looked for again and again while the log grows."""

from __future__ import annotations

import attrs

from trioha.analysis.log_walk import LogWalk, Sound
from trioha.analysis.open_source import open_source
from trioha.analysis.schema import AnalysisError
from trioha.analysis.store_files import Segment, StoreFiles
from trioha.wire.record import BLANK_SIZE

_LEAPS_BYTES = (4 << 20, 64 << 10)
"""Leaps, by search, over what need not be walked record by record."""


@attrs.define(eq=False)
class LogEnd:
    """Search for a log's end that goes on from the end found last."""

    offset: int = -1

    def find(self, store: StoreFiles) -> int:
        """Return the end as an offset in the log, or -1 while there is no record.

        Errors: AnalysisError when the file cannot be read.
        """
        for segment in reversed(store.segments):
            end = self._in_segment(segment)
            if end >= 0:
                self.offset = end
                break
        return self.offset

    def _in_segment(self, segment: Segment) -> int:
        """End of the segment's last record, or -1 when it has none."""
        position = self.offset - segment.from_offset
        begin = position if 0 <= position <= segment.data_end else 0
        try:
            with open_source(segment.path) as source:
                walk = LogWalk(source, segment.from_offset, is_dledger=segment.is_dledger)
                end = _end(walk, begin, segment.data_end)
        except FileNotFoundError:
            return -1
        except OSError as error:
            raise AnalysisError(f"cannot read {segment.path}: {error.strerror}") from None
        if end == begin and begin != position:
            return -1
        return segment.from_offset + end


def held_bytes(store: StoreFiles) -> int:
    """Bytes from a log's first segment to the end of its last record, without missing segments.

    A broker allocates its files before it needs them: their sizes say nothing of the log.

    Errors: AnalysisError when a file cannot be read.
    """
    end = LogEnd().find(store)
    return sum(max(0, min(segment.size, end - segment.from_offset)) for segment in store.segments)


def _end(walk: LogWalk, position: int, data_end: int) -> int:
    for leap_bytes in _LEAPS_BYTES:
        while (leap := walk.find(position + leap_bytes, position + 2 * leap_bytes)) >= 0:
            position = leap
    while walk.limit - position >= BLANK_SIZE:  # less may grow: copies are not allocated at once
        found = walk.sound(position)
        if isinstance(found, Sound):
            position = found.end
        elif walk.is_blank(position):
            return walk.limit
        else:
            following = walk.find(position + 1, data_end)
            if isinstance(walk.sound(position), Sound):
                continue  # it was being written when we looked
            if following < 0:
                return position
            position = following
    return position

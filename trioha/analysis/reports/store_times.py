"""Store times of single records, read from a store's files: exact where journals have bounds."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import attrs

from trioha.analysis.log_walk import LogWalk, Sound, Unsound
from trioha.analysis.open_source import open_source
from trioha.analysis.store_files import Segment, StoreFiles

_BACK_BYTES = (4 << 10, 64 << 10, 4 << 20)
"""Distances before an offset at which a record is searched that may reach over the offset."""


@attrs.define(eq=False)
class StoreTimes:
    """Looks up records by any offset within them."""

    _segments: list[Segment]
    _stack: ExitStack
    _walks: dict[int, LogWalk] = attrs.field(factory=dict)

    def at(self, offset: int) -> int | None:
        """Store time of the record that has the byte at `offset`; None if the log has none there.

        Errors: OSError.
        """
        place = bisect_right([segment.from_offset for segment in self._segments], offset) - 1
        if place < 0 or offset >= self._segments[place].from_offset + self._segments[place].size:
            return None
        segment, walk = self._segments[place], self._walk(place)
        position = offset - segment.from_offset
        found: Sound | Unsound | None = walk.sound(position)
        if isinstance(found, Unsound):
            found = _reaching_over(walk, position)
        if found is None and walk.is_blank(position):
            return self.at(segment.from_offset + segment.size)  # the rest of a segment is filler
        if found is None or found.record_at < 0:
            return None
        return walk.store_ms(found)

    def _walk(self, place: int) -> LogWalk:
        if place not in self._walks:
            segment = self._segments[place]
            source = self._stack.enter_context(open_source(segment.path))
            walk = LogWalk(source, segment.from_offset, is_dledger=segment.is_dledger)
            self._walks[place] = walk
        return self._walks[place]


@contextmanager
def store_times(store: StoreFiles) -> Iterator[StoreTimes]:
    """Look-ups in a store, whose files are closed afterwards."""
    with ExitStack() as stack:
        yield StoreTimes(store.segments, stack)


def _reaching_over(walk: LogWalk, position: int) -> Sound | None:
    for back in _BACK_BYTES:
        begin = walk.find(max(0, position - back), position)
        while 0 <= begin <= position:
            found = walk.sound(begin)
            if not isinstance(found, Sound):
                break
            if found.end > position:
                return found
            begin = found.end
    return None

"""Records of the revive log that a broker that takes over must read.

Theory of operation. A record is needed while what it tells is live: a checkpoint, the batch of an
ordered queue, the request mode of a group. The *progress* of the log is the first record that is
needed; a broker that takes over reads from there. If one old record holds the progress back for
long, the service appends a copy of it, which takes its place here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable


class LiveRecords:
    """Offsets of needed records in queue 0 of the revive log."""

    def __init__(self) -> None:
        self.end = 0
        """Offset behind the last record."""
        self._offset_of: dict[Hashable, int] = {}
        self._in_order: deque[tuple[int, Hashable]] = deque()

    def __len__(self) -> int:
        return len(self._offset_of)

    @property
    def progress(self) -> int:
        """Offset of the first record that is needed."""
        first = self.first()
        return self.end if first is None else first[0]

    @property
    def span(self) -> int:
        """Number of records from the progress to the end."""
        return self.end - self.progress

    def appended(self, offset: int) -> None:
        """Note that a record was appended at `offset`."""
        self.end = max(self.end, offset + 1)

    def put(self, key: Hashable, offset: int) -> None:
        """Note that the record at `offset` tells of `key`, in place of an older one."""
        self.appended(offset)
        self._offset_of[key] = offset
        self._in_order.append((offset, key))

    def drop(self, key: Hashable) -> bool:
        """Note that nothing about `key` is needed any more; return whether something was."""
        return self._offset_of.pop(key, None) is not None

    def first(self) -> tuple[int, Hashable] | None:
        """Return the first record that is needed and what it tells of, or None."""
        in_order = self._in_order
        while in_order and self._offset_of.get(in_order[0][1]) != in_order[0][0]:
            in_order.popleft()
        return in_order[0] if in_order else None

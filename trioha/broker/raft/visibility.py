"""Shows readers of a DLEDGER member only what the group has committed.

Theory of operation. The store adds a record to its queue when the record is written, by this leader
or from another. Readers see the record once it is committed, and only then are waiting pulls woken:
the store's notices of new messages wait here, in the order of the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from trioha.store.interface import DispatchListener
from trioha.store.message_store import FileMessageStore


class RaftVisibility:
    """The listener of a member's store: ``store.on_dispatch = visibility.on_dispatch``."""

    def __init__(
        self, store: FileMessageStore, committed_offset: int, listener: DispatchListener
    ) -> None:
        self._store = store
        self._listener = listener
        self._waiting: deque[tuple[int, str, int, int, Sequence[int]]] = deque()
        store.readable_offset = committed_offset

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def on_dispatch(
        self, topic: str, queue_id: int, max_offset: int, tags_codes: Sequence[int]
    ) -> None:
        """Note that messages of a queue are in the log. HOT on leaders."""
        store, waiting = self._store, self._waiting
        end = store.queue_end_offset(topic, queue_id)
        if end <= store.readable_offset:
            self._listener(topic, queue_id, max_offset, tags_codes)
            return
        if waiting and waiting[-1][0] > end:
            end = waiting[-1][0]  # several queues come in any order: some are shown a little late
        waiting.append((end, topic, queue_id, max_offset, tags_codes))

    def release(self, committed_offset: int) -> None:
        """Show everything below `committed_offset`, and wake the pulls that wait for it."""
        self._store.readable_offset = committed_offset
        waiting, listener = self._waiting, self._listener
        while waiting and waiting[0][0] <= committed_offset:
            _, topic, queue_id, max_offset, tags_codes = waiting.popleft()
            listener(topic, queue_id, max_offset, tags_codes)

    def cut(self, phy_offset: int) -> None:
        """Note that the log was cut at `phy_offset`. A waiting notice may cover records before the
        cut, so all are kept: a pull that is woken without a message waits again."""
        self._waiting = deque((min(one[0], phy_offset), *one[1:]) for one in self._waiting)

"""Shows readers of a node only what they may see: the log below a limit that rises.

Theory of operation. The store adds a record to its queue when the record is written. Readers see
it once the limit has passed its end, and only then are waiting pulls woken: the store's notices of
new messages wait here, in the order of the log. Two kinds of node have such a limit:

* a member of a DLEDGER group shows what the group has committed;
* a SYNC_MASTER of a set of three or more shows what a slave holds (`trioha.ha.readers`).

Other nodes show everything: their limit is `UNBOUNDED`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from operator import itemgetter

from trioha.store.interface import DispatchListener
from trioha.store.lookup import UNBOUNDED
from trioha.store.message_store import FileMessageStore
from trioha.wire.names import DELAYED_TOPICS


class Visibility:
    """The listener of a node's store."""

    def __init__(self, store: FileMessageStore, limit: int, listener: DispatchListener) -> None:
        self._store = store
        self._listener = listener
        self._waiting: deque[tuple[int, str, int, int, Sequence[int]]] = deque()
        self._limit = store.readable_offset = limit

    @property
    def limit(self) -> int:
        """Readers see records that end at most here, in bytes of the log."""
        return self._limit

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def on_dispatch(
        self, topic: str, queue_id: int, max_offset: int, tags_codes: Sequence[int]
    ) -> None:
        """Note that messages of a queue are in the log. HOT."""
        limit = self._limit
        if limit == UNBOUNDED:
            self._listener(topic, queue_id, max_offset, tags_codes)
            return
        end = self._store.queue_end_offset(topic, queue_id)
        if end <= limit:
            self._listener(topic, queue_id, max_offset, tags_codes)
            return
        waiting = self._waiting
        if waiting and waiting[-1][0] > end:
            end = waiting[-1][0]  # several queues come in any order: some are shown a little late
        waiting.append((end, topic, queue_id, max_offset, tags_codes))

    def set_limit(self, limit: int) -> None:
        """Show everything below `limit`, and wake the pulls that wait for it."""
        if limit < self._limit:
            self._hide_delayed(limit)
        self._limit = self._store.readable_offset = limit
        waiting, listener = self._waiting, self._listener
        while waiting and waiting[0][0] <= limit:
            _, topic, queue_id, max_offset, tags_codes = waiting.popleft()
            listener(topic, queue_id, max_offset, tags_codes)

    def _hide_delayed(self, limit: int) -> None:
        """Queue a notice for the end of each queue of delayed messages, for when it is shown.

        No consumer asks for these ends. A broker that starts does not show at first what it has
        stored, and would deliver a delayed message only when the next one comes.
        """
        store = self._store
        hidden = [
            (end, topic, queue_id, store.appended_max_offset(topic, queue_id), ())
            for topic, queue_id in store.queues()
            if topic in DELAYED_TOPICS and (end := store.queue_end_offset(topic, queue_id)) > limit
        ]
        self._waiting = deque(sorted([*self._waiting, *hidden], key=itemgetter(0)))

    def cut(self, phy_offset: int) -> None:
        """Note that the log was cut at `phy_offset`. A waiting notice may cover records before the
        cut, so all are kept: a pull that is woken without a message waits again."""
        self._waiting = deque((min(one[0], phy_offset), *one[1:]) for one in self._waiting)

"""The limit of readers at a master, and when it may answer questions about the present.

Theory of operation. A SYNC_MASTER stores a message before a slave holds it, and answers
SLAVE_NOT_AVAILABLE when no slave is near. If the master is replaced right then, the message is
lost, as its sender was told, and the next master gives its queue offset to another message. A
consumer that was shown the first one has committed past the second one, which may be acknowledged:
the consumer never gets it. A master that is cut off from its slaves, but not from its clients, does
this for as long as it is cut off. It also tells offsets that consumers have moved on from since.

So a node that may have been replaced without its knowledge

* shows readers the log up to what a slave holds of it, in the node's newest own term. A record on
  two members is in the log of every later master (`trioha.ha.quorum`), so no reader skips anything;
* answers a question about the present only after a slave has acknowledged something that was sent
  after the question. A slave that has promised a newer term acknowledges nothing older, so no newer
  term had begun when the question came.

Both hold from the start of a term until the node has adopted the history of another master and cut
its log to it: a deposed master still has the records that nobody else holds.

Only a set of three or more can keep these rules and go on without one of its members. A set of two
whose slave is down has one node left. That node cannot tell a slave that died from a slave that was
promoted, and it goes on serving consumers, as RocketMQ's does. An ASYNC_MASTER promises nothing
about a slave, so there is nothing to wait for.

A node that followed another master holds what that one holds. So everything up to the start of its
first own term after that is safe to show. Before a later own term there may be records that no
other node holds (seed 424 of the pair simulator).
"""

from __future__ import annotations

from itertools import takewhile
from typing import Final

from trioha.ha.mastership import Mastership

OTHERS_MIN: Final = 2
"""Other members of the set from which on the rules apply."""


class ReadersLimit:
    """The limit of one node's readers, in bytes of the log. Only a restart can lower it."""

    def __init__(self, mastership: Mastership) -> None:
        self._mastership = mastership
        self._nonce = b""
        self._limit = 0

    @property
    def applies(self) -> bool:
        """Return whether this node may have been replaced without its knowledge."""
        mastership = self._mastership
        if len(mastership.members) < OTHERS_MIN:
            return False
        newest = mastership.newest
        return newest is not None and newest.sync and mastership.is_own

    def offset(self, acknowledged: int) -> int | None:
        """Return the limit, or None if readers may see the whole log. HOT.

        `acknowledged` is the offset up to which a slave holds the log. It must be of the newest own
        term: what slaves acknowledged in an older one says nothing.
        """
        newest = self._mastership.newest
        if newest is None or not self.applies:
            return None
        if newest.nonce != self._nonce:
            self._begin(newest.nonce)
        self._limit = max(self._limit, acknowledged)
        return self._limit

    def _begin(self, nonce: bytes) -> None:
        mastership = self._mastership
        own = list(
            takewhile(
                lambda one: one.home_id == mastership.home_id, reversed(mastership.history.records)
            )
        )
        # The limit of an own term before this one stays true: the log was not cut since.
        if all(one.nonce != self._nonce for one in own):
            self._limit = 0
        self._nonce, self._limit = nonce, max(self._limit, own[-1].start_offset)

"""The links of a master whose slaves have reported: what each batch of appends goes to.

While no put waits for a slave, as in ASYNC_MASTER, each push would still wake a slave up, and its
report would wake this node: at small batches that costs more than the puts. So the bytes of two
milliseconds go out together, behind the answers to the clients.
"""

from __future__ import annotations

from typing import Final

from trioha.services.ha.master_link import HaMasterLink, ShippedLog
from trioha.services.loop.alarm import Alarm
from trioha.services.loop.clock import Clock
from trioha.services.loop.wakeup import Wakeup

GATHER_BYTES_MAX: Final = 65_536
"""So much goes out at once: at high rates nothing is won by more."""


class SlaveLinks:
    """Sends the log, and what changes beside it, to every slave that was up to date before."""

    def __init__(self, store: ShippedLog, clock: Clock, alarm: Alarm) -> None:
        """`alarm` rings when a slave has acknowledged nothing for too long."""
        self.links: list[HaMasterLink] = []
        self.gathering = Wakeup()
        """Set when something waits for `push`, which is due a little later."""
        self._store = store
        self._clock = clock
        self._alarm = alarm
        self._pushed_offset = 0

    def on_log_grown(self, *, urgent: bool) -> None:
        """Note that the log has grown; called once per batch of appends. HOT.

        `urgent` when a put waits for a slave: then all of it leaves at once.
        """
        if not self.links:
            return
        if urgent or self._store.max_phy_offset - self._pushed_offset >= GATHER_BYTES_MAX:
            self.push()
        else:
            self.gathering.set()

    def send_metadata_nowait(self, position: int, body: bytes, *, urgent: bool) -> None:
        """Send a change of metadata to every extended slave, behind the log so far.

        `urgent` when an answer waits for a slave: then the body leaves at once.
        """
        if not self.links:
            return
        for link in self.links:
            link.add_metadata_nowait(position, body)
        if urgent:
            self.push()
        else:
            self.gathering.set()

    def push(self) -> None:
        """Send the log to every slave that was up to date before. HOT."""
        now_ms = self._clock.now_ms()
        self._pushed_offset = self._store.max_phy_offset
        for link in self.links:
            link.push_nowait(now_ms)
        self._alarm.check()

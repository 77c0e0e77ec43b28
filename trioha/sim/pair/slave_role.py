"""A slave: finds its master, agrees on a common offset, cuts, takes over the history, follows."""

from __future__ import annotations

import attrs

from trioha.errors import RemoteProtocolError
from trioha.ha.events import LogTransferred
from trioha.ha.greeting import checksum
from trioha.ha.hello import Hello, HelloAnswer, MeetingPlace, agree, meetings
from trioha.ha.slave_connection import SlaveConnection
from trioha.sim.network import End, Item
from trioha.sim.pair.master_role import HEARTBEAT_MS, HOUSEKEEPING_MS
from trioha.sim.pair.messages import AskRoute, Route
from trioha.sim.pair.views import SimProcess
from trioha.wire.need_data import NEED_DATA

RECONNECT_MS = 200


class SlaveRole:
    """The slave role of a node; it ends when the node becomes master, or ends."""

    def __init__(self, node: SimProcess, follows: str = "") -> None:
        self.follows = follows
        """Host that the slave follows as its master; "" while it asks."""
        self.linked = False
        self.announced_offset: int | None = None
        """Largest log end that a master announced to it."""
        self._node = node
        self._busy = False
        self._seek_at_ms = 0
        self._end: End | None = None
        self._connection: SlaveConnection | None = None
        self._heard_ms = 0
        self._whole_at = 0
        self._over = False

    def on_time(self) -> None:
        node = self._node
        if node.roles.suspended:
            return
        if self._end is not None and self._connection is not None:
            if node.now_ms - self._heard_ms > HOUSEKEEPING_MS:
                self._lose("the master is silent")
            else:
                self._report()
        elif not self._busy and node.now_ms >= self._seek_at_ms:
            self._seek()

    def follow_anew(self, reason: str) -> None:
        """End the link, and ask again which master may be followed."""
        self._lose(reason)
        self._seek_at_ms = 0

    def suspend(self) -> None:
        """Acknowledge nothing until it is said otherwise."""
        follows = self.follows
        self._lose("suspended")
        self.follows = follows

    def end(self) -> None:
        self._over = True
        if self._end is not None:
            self._end.close()
            self._end = None

    def _seek(self) -> None:
        self._busy = True
        if self.follows:
            self._shake_hands(self.follows)
        else:
            self._node.ask(self._node.world.namesrv.host, AskRoute(), self._hear_route)

    def _hear_route(self, answer: object) -> None:
        if self._over:
            return
        if isinstance(answer, Route) and answer.master not in ("", self._node.host):
            self._shake_hands(answer.master)
        else:
            self._rest()

    def _shake_hands(self, master: str) -> None:
        """Ask for the master's history, then for checksums of the places where the logs meet."""
        node = self._node
        ours = node.hello()

        def hear(answer: object) -> None:
            if self._over:
                return
            if not isinstance(answer, HelloAnswer):
                self._turn_away("no answer")
                return
            node.roles.hear(answer.known_epoch, answer.known_nonce, master)
            try:
                found = meetings(ours, answer)
            except RemoteProtocolError as error:
                self._turn_away(str(error))
                return
            if not found:
                self._agree(master, ours, answer, ())
                return
            again = attrs.evolve(ours, spans=tuple(one.span for one in found))

            def compare(sums: object) -> None:
                if self._over:
                    return
                if not isinstance(sums, HelloAnswer) or sums.log.history != answer.log.history:
                    self._turn_away("the master has changed its role meanwhile")
                else:
                    self._agree(master, ours, sums, found)

            node.ask(master, again, compare)

        node.ask(master, ours, hear)

    def _turn_away(self, reason: str) -> None:
        self._node.tell(f"does not follow {self.follows}: {reason}")
        self.follows = ""
        self._rest()

    def _agree(
        self, master: str, ours: Hello, answer: HelloAnswer, found: tuple[MeetingPlace, ...]
    ) -> None:
        node = self._node
        mastership = node.roles.mastership
        term = answer.term
        if node.roles.suspended or not mastership.follows_term(term.epoch, term.nonce):
            self._rest()
            return
        if node.log_end != ours.log.end:
            self._rest()
            return
        sums = [checksum(node.log, one.span) for one in found]
        try:
            common_offset = agree(found, ours, answer, sums)
        except RemoteProtocolError as error:
            self._turn_away(str(error))
            return
        if common_offset < node.log_end:
            node.tell(f"cuts {node.log_end} to {common_offset} for {master}")
            node.cut(common_offset)
        mastership.adopt(answer.log.history)
        node.roles.adopted()
        self._whole_at = answer.log.end
        self.follows, self._busy = master, False
        self._connection = SlaveConnection(
            node.log_end,
            node.now_ms,
            report_interval_ms=HEARTBEAT_MS,
            at_record=node.log.parsed_end == node.log_end,
        )
        end = self._end = node.world.network.connect(node.host, master, "ha")
        end.on_item = node.waking(self._receive)
        end.on_close = node.awake(lambda: self._lose("closed"))
        end.send((term.epoch, term.nonce))
        self._heard_ms = node.now_ms
        self._report()

    def _receive(self, item: Item) -> None:
        node, connection = self._node, self._connection
        if self._over or connection is None:
            return
        assert isinstance(item, bytes)
        self._heard_ms = node.now_ms
        self.linked = True
        connection.receive_data(item)
        try:
            while (event := connection.next_event()) is not NEED_DATA:
                if isinstance(event, LogTransferred):
                    node.log.append_log(event.phy_offset, event.body)
        except RemoteProtocolError as error:
            self._lose(str(error))
            return
        if node.roles.mastership.may_have_lost and node.log_end >= self._whole_at:
            node.roles.mastership.note_whole()
        self.announced_offset = max(self.announced_offset or 0, connection.max_phy_offset)
        self._report()

    def _report(self) -> None:
        if self._end is not None and self._connection is not None:
            data = self._connection.report(self._node.now_ms)
            if data:
                self._end.send(data)

    def _lose(self, reason: str) -> None:
        if self._end is None or self._over:
            return
        self._node.tell(f"lost its master: {reason}")
        self._end.close()
        self._end = self._connection = None
        self.linked = False
        self.follows = ""
        self._rest()

    def _rest(self) -> None:
        self._busy = False
        self._seek_at_ms = self._node.now_ms + RECONNECT_MS

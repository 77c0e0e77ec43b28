"""Requests 30020-30027: what a failover asks of a node, step by step (docs/decisions/0012).

Theory of operation. Whoever carries out a failover (`trioha.failover.engine`) drives the nodes with
these requests, all under one ticket (`trioha.broker.failover_ticket`). Bodies are msgpack maps,
both ways; every answer holds the node's facts of that moment. Each request can be repeated under
its ticket, since an answer may be lost: the second time it only answers.

=====  ================  ===========================================================================
30020  FAILOVER_TICKET   take or renew the ticket; with ``log_offset`` and ``metadata_position``
                         the answer waits until log and tables reach there, or for ``wait_ms``;
                         ``forced``: a slave acknowledges nothing to its master any more until
                         the ticket ends
30021  PAUSE_WRITES      master: writes wait from now on; the answer tells where the log ends
30022  HAND_OVER         master: fenced for ``epoch``, for good unless the target never begins it;
                         ``log_offset`` and ``metadata_position`` are what the target confirmed
30023  PROMOTE           target: begin ``epoch``; answered when it is master. ``promised``: home
                         ids of the members that have promised it; ``written_off``: of those
                         that the operator gave up by force; ``members``: addresses of the whole
                         set by home id
30024  FOLLOW            anybody else: this is the new master
30025  FAILOVER_AUDIT    the records of past failovers; needs no ticket
30026  RELEASE           the ticket ends; ``audit`` is kept; tells whether the ticket was used;
                         ``resume``: the target says that it was not, so be master again
30027  PROMISE           anybody but the target: follow and acknowledge nothing older than
                         ``epoch`` from now on, durably (`trioha.ha.quorum`)
=====  ================  ===========================================================================

What a step does to the node is the business of `RoleControl`; this module knows who may ask, what
is still to be answered, and when the time of each is up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import attrs
import msgpack

from trioha.broker.failover_ticket import Phase, Ticket, TicketDesk
from trioha.errors import CommandError, RemoteProtocolError
from trioha.ha.mastership import MEMBERS_MAX
from trioha.ha.promotion import Peer, Promotion
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.maps import decode_map
from trioha.wire.remoting_command import RemotingCommand

TICKET_ID_CHARS = 16
"""Hexadecimal: the 8 bytes that become the nonce of the term."""
AUDIT_BYTES_MAX = 65_536
WAITERS_MAX = 64
_BODY_BYTES_MAX = 131_072

Facts = Mapping[str, object]


class RoleControl(Protocol):
    """What the node can be told to do; nothing here blocks.

    Errors: CommandError when the node is not what the step needs; nothing has changed then.
    """

    @property
    def log_end(self) -> int: ...
    @property
    def metadata_position(self) -> int:
        """Of a master: up to where topics, groups and offsets have changed, by its own count. Of
        a slave: how much of that it has; -1 if it is not told."""

    def facts(self) -> Facts:
        """What each answer tells of this node."""

    def has_begun(self, nonce: bytes) -> bool:
        """Is the term with this nonce in our history, begun by this node?"""

    def pause(self) -> None:
        """Park writes from now on; again: nothing."""

    def resume(self) -> None:
        """What was parked goes on as if nothing had been."""

    def take_back(self) -> bool:
        """What was handed over is void: be master again; False when that cannot be."""

    def target_holds(self, log_offset: int, metadata_position: int) -> None:
        """Who is about to be master has said so: an ack, and it may be quicker than its own."""

    def hand_over(self, target: Peer, epoch: int, ticket_id: str) -> None:
        """Stop being master; what is parked stays so until it is known who is."""

    def promise(self, epoch: int, nonce: bytes) -> None:
        """Follow and acknowledge nothing older than this term from this pass on; durable."""

    def promote(self, promotion: Promotion, done: Callable[[str], None]) -> None:
        """Become master; `done` gets "" or why not, later."""

    def follow(self, master: Peer, epoch: int, nonce: bytes) -> None:
        """Be a slave of this master."""

    def suspend_following(self, reason: str) -> None:
        """Acknowledge nothing to the master of the moment from this very pass on."""

    def follow_again(self) -> None:
        """The end of that."""

    def left_alone(self) -> None:
        """A ticket was used here and has ended: who is not followed by now has to be asked."""

    def keep_audit(self, record: Mapping[str, object]) -> None: ...
    def audit_records(self) -> list[Mapping[str, object]]:
        """Oldest first."""


@attrs.define(eq=False)
class _Waiter:
    """A ticket request that wants to hear of our log."""

    channel: Channel
    request: RemotingCommand
    log_offset: int
    metadata_position: int
    """0: any will do."""
    deadline_ms: int

    def is_satisfied(self, control: RoleControl) -> bool:
        return control.log_end >= self.log_offset and (
            not self.metadata_position or control.metadata_position >= self.metadata_position
        )


class FailoverProcessor:
    """The steps of a failover as one node sees them."""

    def __init__(
        self,
        broker_name: str,
        control: RoleControl,
        events: EventSink,
        on_deadline: Callable[[], None] = lambda: None,
    ) -> None:
        self.desk = TicketDesk()
        self._on_deadline = on_deadline
        self._broker_name = broker_name
        self._control = control
        self._events = events
        self._waiters: list[_Waiter] = []
        # Who waits for the promotion that is under way; None when none is.
        self._promoting: list[tuple[Channel, RemotingCommand]] | None = None

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.FAILOVER_TICKET: self.ticket,
            RequestCode.PAUSE_WRITES: self.pause,
            RequestCode.HAND_OVER: self.hand_over,
            RequestCode.PROMOTE: self.promote,
            RequestCode.FOLLOW: self.follow,
            RequestCode.FAILOVER_AUDIT: self.audit,
            RequestCode.RELEASE: self.release,
            RequestCode.PROMISE: self.promise,
        }

    # Time and the log.

    @property
    def next_deadline_ms(self) -> int | None:
        deadlines = [waiter.deadline_ms for waiter in self._waiters]
        if self.desk.next_deadline_ms is not None and self._promoting is None:
            deadlines.append(self.desk.next_deadline_ms)
        return min(deadlines, default=None)

    def on_time(self, instant: Instant) -> None:
        """Answer who has waited long enough, and end the ticket whose time is up."""
        self._answer_waiters(lambda waiter: instant.now_ms >= waiter.deadline_ms)
        if self._promoting is not None:
            return  # it ends by itself, one way or the other
        ticket = self.desk.expire(instant.now_ms)
        if ticket is not None:
            self._ended(ticket, "expired")

    def on_log_grown(self) -> None:
        """The log has grown, or the tables have."""
        if self._waiters:
            self._answer_waiters(lambda waiter: waiter.is_satisfied(self._control))

    def role_lost(self) -> None:
        """Somebody holds a newer epoch: whatever was paused here is over."""
        ticket = self.desk.ticket
        if ticket is not None and ticket.phase is Phase.PAUSED:
            self.desk.use(ticket)

    def master_announced(self, promised_nonce: bytes) -> None:
        """Follow again if this node has promised the ticket's term; a master named itself to it.

        The promise alone keeps the node from acknowledging to an older master. Suspended until the
        ticket ends, it would not follow the new one if the operator vanished after the promotion.
        """
        ticket = self.desk.ticket
        if (
            ticket is not None
            and ticket.forced
            and bytes.fromhex(ticket.ticket_id) == promised_nonce
        ):
            ticket.forced = False
            self._control.follow_again()

    # Steps.

    def ticket(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        body = _Body(request)
        name = body.text("broker_name")
        if name != self._broker_name:
            raise CommandError(
                ResponseCode.SYSTEM_ERROR, f"this node belongs to {self._broker_name}, not {name}"
            )
        is_new = self.desk.ticket is None
        ticket = self.desk.grant(
            body.ticket_id(),
            body.text("operator"),
            channel.peer,
            body.integer("ttl_ms"),
            instant.now_ms,
        )
        if is_new:
            self._events.event(
                "failover_ticket",
                ticket=ticket.ticket_id,
                operator=ticket.operator,
                origin=ticket.origin,
            )
        if body.boolean_or_none("forced"):
            ticket.forced = True
            self._control.suspend_following(f"{ticket.operator} fails this broker over")
        self._on_deadline()
        wait_ms = body.integer("wait_ms", 0)
        waiter = _Waiter(
            channel,
            request,
            body.integer("log_offset", 0),
            body.integer("metadata_position", 0),
            instant.now_ms + wait_ms,
        )
        if wait_ms <= 0 or waiter.is_satisfied(self._control):
            return self._answer(request)
        if len(self._waiters) >= WAITERS_MAX:
            raise CommandError(ResponseCode.SYSTEM_BUSY, "too many wait for this log already")
        self._waiters.append(waiter)
        self._on_deadline()
        return None

    def pause(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        body = _Body(request)
        ticket = self.desk.shown(body.ticket_id())
        if ticket.phase is Phase.USED:
            raise CommandError(ResponseCode.NO_PERMISSION, "mastership was handed over already")
        self._control.pause()
        if ticket.phase is not Phase.PAUSED:
            self._events.event(
                "writes_paused", ticket=ticket.ticket_id, log_end=self._control.log_end
            )
        self.desk.pause(ticket, body.integer("pause_ms"), instant.now_ms)
        self._on_deadline()
        return self._answer(request)

    def hand_over(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        body = _Body(request)
        ticket = self.desk.shown(body.ticket_id())
        if ticket.phase is Phase.HELD:
            # It went on writing since: what was confirmed of the log is no longer all of it.
            raise CommandError(
                ResponseCode.NO_PERMISSION, "writes are not paused here any more; start again"
            )
        if ticket.phase is Phase.PAUSED:
            self._control.target_holds(
                body.integer("log_offset", 0), body.integer("metadata_position", 0)
            )
            self._control.hand_over(body.peer(), body.integer("epoch"), ticket.ticket_id)
            self.desk.use(ticket)
            self._on_deadline()
        return self._answer(request)

    def promote(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        body = _Body(request)
        ticket_id = body.ticket_id()
        nonce = bytes.fromhex(ticket_id)
        if self._control.has_begun(nonce):
            return self._answer(request)
        ticket = self.desk.shown(ticket_id)
        if self._promoting is not None:
            self._promoting.append((channel, request))
            return None
        promotion = Promotion(
            epoch=body.integer("epoch"),
            nonce=nonce,
            sync=body.boolean_or_none("sync"),
            log_offset=body.integer("log_offset", 0),
            operator=ticket.operator,
            planned=bool(body.boolean_or_none("planned")),
            promised=body.home_ids("promised"),
            written_off=body.home_ids("written_off"),
            members=body.members(),
        )
        self._promoting = [(channel, request)]
        try:
            self._control.promote(promotion, lambda reason: self._promoted(ticket, reason))
        except CommandError:
            self._promoting = None
            raise
        return None

    def promise(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        body = _Body(request)
        ticket_id = body.ticket_id()
        self.desk.shown(ticket_id)
        self._control.promise(body.integer("epoch"), bytes.fromhex(ticket_id))
        return self._answer(request)

    def follow(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        body = _Body(request)
        ticket = self.desk.shown(body.ticket_id())
        self._control.follow(body.peer(), body.integer("epoch"), body.raw("nonce"))
        self.desk.use(ticket)
        if ticket.forced:
            ticket.forced = False
            self._control.follow_again()
        return self._answer(request)

    def audit(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        return request.response(body=msgpack.packb({"records": self._control.audit_records()}))

    def release(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        body = _Body(request)
        ticket_id = body.ticket_id()
        held = self.desk.ticket
        if self._promoting is not None and held is not None and held.ticket_id == ticket_id:
            raise CommandError(ResponseCode.SYSTEM_BUSY, "the promotion is under way; ask again")
        used = self._control.has_begun(bytes.fromhex(ticket_id))
        ticket = self.desk.end(ticket_id)
        if ticket is not None:
            used = used or ticket.phase is Phase.USED
            if ticket.phase is Phase.USED and body.boolean_or_none("resume"):
                used = not self._control.take_back()
            else:
                self._ended(ticket, "released")
        record = body.fields.get("audit")
        if isinstance(record, dict):
            self._control.keep_audit(record)
        return self._answer(request, used=used)

    def _promoted(self, ticket: Ticket, reason: str) -> None:
        waiting, self._promoting = self._promoting or [], None
        if not reason:
            self.desk.use(ticket)
        for channel, request in waiting:
            if reason:
                response = request.response(ResponseCode.SYSTEM_ERROR, reason)
            else:
                response = self._answer(request)
            if not request.is_oneway:
                channel.send_nowait(response)
        # While it lasted the ticket had no deadline; now it has one again.
        self._on_deadline()

    def _ended(self, ticket: Ticket, how: str) -> None:
        self._events.event(
            "failover_ticket_ended", ticket=ticket.ticket_id, phase=ticket.phase.value, reason=how
        )
        if ticket.forced:
            self._control.follow_again()
        if ticket.phase is Phase.PAUSED:
            self._control.resume()
            self._events.event("writes_resumed", ticket=ticket.ticket_id, reason=how)
        elif ticket.phase is Phase.USED:
            self._control.left_alone()

    def _answer_waiters(self, is_due: Callable[[_Waiter], bool]) -> None:
        due = [waiter for waiter in self._waiters if is_due(waiter)]
        if due:
            self._waiters = [waiter for waiter in self._waiters if waiter not in due]
            for waiter in due:
                waiter.channel.send_nowait(self._answer(waiter.request))

    def _answer(self, request: RemotingCommand, **more: object) -> RemotingCommand:
        return request.response(body=msgpack.packb({**self._control.facts(), **more}))


class _Body:
    """The msgpack map of a request, read field by field.

    Errors: RemoteProtocolError, naming the field.
    """

    def __init__(self, request: RemotingCommand) -> None:
        data = request.body_bytes()
        if len(data) > _BODY_BYTES_MAX:
            raise RemoteProtocolError(f"a failover request of {len(data)} bytes")
        self.fields = decode_map(data, "the body")

    def ticket_id(self) -> str:
        ticket_id = self.text("ticket_id")
        try:
            if len(ticket_id) == TICKET_ID_CHARS and bytes.fromhex(ticket_id).hex() == ticket_id:
                return ticket_id
        except ValueError:
            pass
        raise RemoteProtocolError(f"ticket_id {ticket_id!r:.40} is not 16 hexadecimal digits")

    def text(self, name: str) -> str:
        value = self.fields.get(name)
        if not isinstance(value, str):
            raise RemoteProtocolError(f"{name} is not text: {value!r:.60}")
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.fields.get(name, default)
        if type(value) is not int or value < 0:
            raise RemoteProtocolError(f"{name} is not a number: {value!r:.60}")
        return value

    def boolean_or_none(self, name: str) -> bool | None:
        value = self.fields.get(name)
        if value is not None and not isinstance(value, bool):
            raise RemoteProtocolError(f"{name} is not a boolean: {value!r:.60}")
        return value

    def raw(self, name: str) -> bytes:
        value = self.fields.get(name)
        if not isinstance(value, bytes):
            raise RemoteProtocolError(f"{name} is not bytes: {value!r:.60}")
        return value

    def home_ids(self, name: str) -> tuple[int, ...]:
        values = self.fields.get(name, [])
        if not isinstance(values, list) or len(values) > MEMBERS_MAX:
            raise RemoteProtocolError(f"{name} is no list of home ids: {values!r:.60}")
        if not all(type(value) is int and value >= 0 for value in values):
            raise RemoteProtocolError(f"{name} is no list of home ids: {values!r:.60}")
        return tuple(values)

    def members(self) -> dict[int, str]:
        """Addresses by home id; the keys are texts, as in the status."""
        table = self.fields.get("members", {})
        if not isinstance(table, dict) or len(table) > MEMBERS_MAX:
            raise RemoteProtocolError(f"members is no table of addresses: {table!r:.60}")
        if not all(
            isinstance(key, str) and key.isdecimal() and isinstance(value, str)
            for key, value in table.items()
        ):
            raise RemoteProtocolError(f"members is no table of addresses: {table!r:.60}")
        return {int(key): value for key, value in table.items()}

    def peer(self) -> Peer:
        return Peer(
            home_id=self.integer("home_id"),
            address=self.text("address"),
            ha_address=self.text("ha_address"),
        )

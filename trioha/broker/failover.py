"""Requests 30020-30027: the steps of a failover at one node (docs/decisions/0012).

Theory of operation. The engine of a failover (`trioha.failover.engine`) drives the nodes with
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
30024  FOLLOW            any other node: follow this new master
30025  FAILOVER_AUDIT    the records of past failovers; needs no ticket
30026  RELEASE           the ticket ends; ``audit`` is kept; tells whether the ticket was used;
                         ``resume``: the target says that it was not, so be master again
30027  PROMISE           any node but the target: follow and acknowledge nothing older than
                         ``epoch`` from now on, durably (`trioha.ha.quorum`)
=====  ================  ===========================================================================

`RoleSteps` changes the node's role, and `FailoverNode` tells the facts. This module decides which
operator may ask, which requests wait for an answer, and until when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import attrs
import msgpack

from trioha.broker.failover_audit import AuditTrail
from trioha.broker.failover_body import FailoverBody
from trioha.broker.failover_ticket import Phase, Ticket, TicketDesk
from trioha.errors import CommandError
from trioha.ha.promotion import Peer, Promotion
from trioha.journal import EventSink
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.requests import answer_late
from trioha.wire.address import parse_address
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.refusals import no_permission, system_error
from trioha.wire.remoting_command import RemotingCommand

WAITERS_MAX = 64

Facts = Mapping[str, object]


class FailoverNode(Protocol):
    """The node that a failover asks: the positions of its log and tables, and its facts."""

    @property
    def log_end(self) -> int: ...
    @property
    def metadata_position(self) -> int:
        """A master's position of the newest change of topics, groups and offsets; at a slave,
        the position of the newest such change that it has, -1 if the master sends none."""

    def facts(self) -> Facts:
        """Return the facts of this node that each answer holds."""

    def target_holds(self, log_offset: int, metadata_position: int) -> None:
        """Count what the target of a hand-over says that it holds, as an acknowledgement."""


class RoleSteps(Protocol):
    """The steps that change a node's role; `trioha.ha.role_machine` says what each of them does.

    Errors: CommandError when the node is not what the step needs; nothing has changed then.
    """

    def has_begun(self, nonce: bytes) -> bool: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def take_back(self) -> bool: ...
    def hand_over(self, target: Peer, epoch: int, ticket_id: str) -> None: ...
    def promise(self, epoch: int, nonce: bytes) -> None: ...
    def promote(self, promotion: Promotion, done: Callable[[str], None]) -> None: ...
    def follow(self, master: Peer, epoch: int, nonce: bytes) -> None: ...
    def suspend_following(self, reason: str) -> None: ...
    def follow_again(self) -> None: ...
    def left_alone(self) -> None: ...


@attrs.define(eq=False)
class _Waiter:
    """A ticket request whose answer waits until log and tables have come so far."""

    channel: Channel
    request: RemotingCommand
    log_offset: int
    metadata_position: int
    """0: any will do."""
    deadline_ms: int

    def is_satisfied(self, node: FailoverNode) -> bool:
        return node.log_end >= self.log_offset and (
            not self.metadata_position or node.metadata_position >= self.metadata_position
        )


@attrs.define(eq=False)
class FailoverProcessor:
    """The steps of a failover as one node sees them."""

    _broker_name: str
    _role: RoleSteps
    _node: FailoverNode
    _audit: AuditTrail
    _events: EventSink
    _on_deadline: Callable[[], None] = lambda: None
    """Called when `next_deadline_ms` may have changed."""
    _caller: Callable[[Channel, RemotingCommand], str] = lambda channel, request: ""
    """Returns the account that has signed a request; "" if none was checked."""
    _check_address: Callable[[str], object] = parse_address
    """Raises TriohaError for what is no address. A simulated host's name is its address."""
    desk: TicketDesk = attrs.field(factory=TicketDesk, init=False)
    _waiters: list[_Waiter] = attrs.field(factory=list, init=False)
    # Requests that wait for the promotion in progress; None when there is none.
    _promoting: list[tuple[Channel, RemotingCommand]] | None = attrs.field(default=None, init=False)

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
        """Answer requests whose wait is over, and end the ticket whose time is up."""
        self._answer_waiters(lambda waiter: instant.now_ms >= waiter.deadline_ms)
        if self._promoting is not None:
            return  # the promotion ends by itself
        ticket = self.desk.expire(instant.now_ms)
        if ticket is not None:
            self._ended(ticket, "expired")

    def on_log_grown(self) -> None:
        """Note that the log has grown, or the tables have changed."""
        if self._waiters:
            self._answer_waiters(lambda waiter: waiter.is_satisfied(self._node))

    def role_lost(self) -> None:
        """End the pause of the ticket: another node holds a newer epoch."""
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
            self._role.follow_again()

    # Steps. Each reads the whole body first: a request with a wrong field changes nothing.

    def ticket(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        body = FailoverBody(request)
        name = body.text("broker_name")
        if name != self._broker_name:
            raise system_error(f"this node belongs to {self._broker_name}, not {name}")
        is_forced = bool(body.boolean_or_none("forced"))
        wait_ms = body.integer("wait_ms", 0)
        waiter = _Waiter(
            channel,
            request,
            body.integer("log_offset", 0),
            body.integer("metadata_position", 0),
            instant.now_ms + wait_ms,
        )
        is_new = self.desk.ticket is None
        operator, account = body.text("operator"), self._caller(channel, request)
        ticket = self.desk.grant(
            body.ticket_id(),
            # The account is proven; the operator's name is what the tool says.
            f"{account} ({operator})" if account else operator,
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
        if is_forced:
            ticket.forced = True
            self._role.suspend_following(f"{ticket.operator} fails this broker over")
        self._on_deadline()
        if wait_ms <= 0 or waiter.is_satisfied(self._node):
            return self._answer(request)
        if len(self._waiters) >= WAITERS_MAX:
            raise CommandError(
                ResponseCode.SYSTEM_BUSY, "too many requests wait for this log already"
            )
        self._waiters.append(waiter)
        self._on_deadline()
        return None

    def pause(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        body = FailoverBody(request)
        pause_ms = body.integer("pause_ms")
        ticket = self.desk.shown(body.ticket_id())
        if ticket.phase is Phase.USED:
            raise no_permission("this node has handed its mastership over already")
        self._role.pause()
        if ticket.phase is not Phase.PAUSED:
            self._events.event("writes_paused", ticket=ticket.ticket_id, log_end=self._node.log_end)
        self.desk.pause(ticket, pause_ms, instant.now_ms)
        self._on_deadline()
        return self._answer(request)

    def hand_over(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        body = FailoverBody(request)
        held = body.integer("log_offset", 0), body.integer("metadata_position", 0)
        target, epoch = body.peer(self._check_address), body.epoch()
        ticket = self.desk.shown(body.ticket_id())
        if ticket.phase is Phase.HELD:
            # This node has written since, so the target has not confirmed the whole log.
            raise no_permission("writes are not paused here any more; start again")
        if ticket.phase is Phase.PAUSED:
            self._node.target_holds(*held)
            self._role.hand_over(target, epoch, ticket.ticket_id)
            self.desk.use(ticket)
            self._on_deadline()
        return self._answer(request)

    def promote(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand | None:
        body = FailoverBody(request)
        ticket_id = body.ticket_id()
        nonce = bytes.fromhex(ticket_id)
        if self._role.has_begun(nonce):
            return self._answer(request)
        ticket = self.desk.shown(ticket_id)
        if self._promoting is not None:
            self._promoting.append((channel, request))
            return None
        promotion = Promotion(
            epoch=body.epoch(),
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
            self._role.promote(promotion, lambda reason: self._promoted(ticket, reason))
        except CommandError:
            self._promoting = None
            raise
        return None

    def promise(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        body = FailoverBody(request)
        ticket_id = body.ticket_id()
        self.desk.shown(ticket_id)
        self._role.promise(body.epoch(), bytes.fromhex(ticket_id))
        return self._answer(request)

    def follow(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        body = FailoverBody(request)
        ticket = self.desk.shown(body.ticket_id())
        self._role.follow(body.peer(self._check_address), body.epoch(), body.nonce())
        self.desk.use(ticket)
        if ticket.forced:
            ticket.forced = False
            self._role.follow_again()
        return self._answer(request)

    def audit(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        return request.response(body=msgpack.packb({"records": self._audit.records}))

    def release(
        self, channel: Channel, request: RemotingCommand, instant: Instant
    ) -> RemotingCommand:
        body = FailoverBody(request)
        ticket_id = body.ticket_id()
        record, resumes = body.audit(), body.boolean_or_none("resume")
        held = self.desk.ticket
        if self._promoting is not None and held is not None and held.ticket_id == ticket_id:
            raise CommandError(ResponseCode.SYSTEM_BUSY, "the promotion is in progress; ask again")
        used = self._role.has_begun(bytes.fromhex(ticket_id))
        ticket = self.desk.end(ticket_id)
        if ticket is not None:
            used = used or ticket.phase is Phase.USED
            if ticket.phase is Phase.USED and resumes:
                used = not self._role.take_back()
            else:
                self._ended(ticket, "released")
        if record is not None:
            account = self._caller(channel, request)
            self._keep({**record, "account": account} if account else record)
        return self._answer(request, used=used)

    def _keep(self, record: Mapping[str, object]) -> None:
        self._audit.keep(record)
        self._events.event(
            "failover",
            ticket=str(record.get("ticket_id")),
            operator=str(record.get("operator")),
            result=str(record.get("result")),
            message=str(record.get("message")),
        )

    def _promoted(self, ticket: Ticket, reason: str) -> None:
        waiting, self._promoting = self._promoting or [], None
        if not reason:
            self.desk.use(ticket)
        for channel, request in waiting:
            if reason:
                response = request.response(ResponseCode.SYSTEM_ERROR, reason)
            else:
                response = self._answer(request)
            answer_late(channel, request, response)
        # The ticket had no deadline during the promotion; now it has one again.
        self._on_deadline()

    def _ended(self, ticket: Ticket, how: str) -> None:
        self._events.event(
            "failover_ticket_ended", ticket=ticket.ticket_id, phase=ticket.phase.value, reason=how
        )
        if ticket.forced:
            self._role.follow_again()
        if ticket.phase is Phase.PAUSED:
            self._role.resume()
            self._events.event("writes_resumed", ticket=ticket.ticket_id, reason=how)
        elif ticket.phase is Phase.USED:
            self._role.left_alone()

    def _answer_waiters(self, is_due: Callable[[_Waiter], bool]) -> None:
        due = [waiter for waiter in self._waiters if is_due(waiter)]
        if due:
            self._waiters = [waiter for waiter in self._waiters if waiter not in due]
            for waiter in due:
                answer_late(waiter.channel, waiter.request, self._answer(waiter.request))

    def _answer(self, request: RemotingCommand, **more: object) -> RemotingCommand:
        return request.response(body=msgpack.packb({**self._node.facts(), **more}))

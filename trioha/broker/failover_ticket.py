"""Leave to change a node's role: one ticket at a time, with a deadline.

Theory of operation. An operator who fails a broker over takes a ticket at the nodes to change. A
node gives out one at a time and names its holder to every other operator. Each step shows the
ticket, so a late step of an attempt that was given up changes nothing:

    HELD ──pause──▶ PAUSED ──hand over──▶ USED     at the master
    HELD ──────────promote──────────────▶ USED     at the target

A ticket that is not used ends at its deadline, and a pause at its own, which is nearer: then writes
go on. The last step of a used ticket gives the same answer when it is repeated. A ticket that has
ended is not given out again, however late a copy of its request arrives.
"""

from __future__ import annotations

import enum
from collections import deque

import attrs

from trioha.errors import CommandError
from trioha.wire.refusals import no_permission

TTL_MS_MAX = 300_000
PAUSE_MS_MAX = 30_000
"""A put parked for longer than the client's own patience helps no client."""
_ENDED_KEPT = 64
_NAME_CHARS_MAX = 200


class Phase(enum.Enum):
    """The steps that the ticket's holder has taken at this node."""

    HELD = "held"
    PAUSED = "paused"
    USED = "used"


@attrs.define(eq=False)
class Ticket:
    """An operator's leave to fail this broker over."""

    ticket_id: str
    operator: str
    """The operator and the machine: ``anna@ops-1``."""
    origin: str
    """The address from which the operator asked for it."""
    granted_ms: int
    deadline_ms: int
    phase: Phase = Phase.HELD
    forced: bool = False
    """The master is given up: nothing is acknowledged to it while the ticket lasts."""
    pause_deadline_ms: int | None = None

    def as_dict(self, now_ms: int) -> dict[str, object]:
        """Return the fields for answers and the status."""
        return {
            "ticket_id": self.ticket_id,
            "operator": self.operator,
            "origin": self.origin,
            "phase": self.phase.value,
            "age_s": (now_ms - self.granted_ms) / 1000,
            "left_s": max(0, self.deadline_ms - now_ms) / 1000,
        }


class TicketDesk:
    """The ticket of one node. Times come in; `next_deadline_ms` says when to call `expire`."""

    def __init__(self) -> None:
        self.ticket: Ticket | None = None
        self._ended: deque[str] = deque(maxlen=_ENDED_KEPT)

    @property
    def next_deadline_ms(self) -> int | None:
        ticket = self.ticket
        if ticket is None:
            return None
        if ticket.pause_deadline_ms is not None:
            return min(ticket.deadline_ms, ticket.pause_deadline_ms)
        return ticket.deadline_ms

    def holder(self) -> str:
        """Return the operator whose ticket is held here, "" for none."""
        return self.ticket.operator if self.ticket is not None else ""

    def grant(self, ticket_id: str, operator: str, origin: str, ttl_ms: int, now_ms: int) -> Ticket:
        """Give out a new ticket, or renew the deadline of the one that is held.

        Errors: CommandError that names the holder of another ticket.
        """
        ticket = self.ticket
        if ticket is not None and ticket.ticket_id != ticket_id:
            raise no_permission(
                f"{ticket.operator} (from {ticket.origin}) has been failing this broker over for "
                f"{(now_ms - ticket.granted_ms) / 1000:.1f} s; talk to them, or wait "
                f"{max(0, ticket.deadline_ms - now_ms) / 1000:.1f} s until that attempt expires"
            )
        if ticket_id in self._ended:
            raise _no_ticket(ticket_id)
        deadline_ms = now_ms + max(1, min(ttl_ms, TTL_MS_MAX))
        if ticket is None:
            ticket = self.ticket = Ticket(
                ticket_id,
                operator[:_NAME_CHARS_MAX],
                origin,
                granted_ms=now_ms,
                deadline_ms=deadline_ms,
            )
        ticket.deadline_ms = max(ticket.deadline_ms, deadline_ms)
        return ticket

    def shown(self, ticket_id: str) -> Ticket:
        """Return the ticket that a step shows.

        Errors: CommandError when it is not the one that is held here.
        """
        if self.ticket is None or self.ticket.ticket_id != ticket_id:
            raise _no_ticket(ticket_id)
        return self.ticket

    def pause(self, ticket: Ticket, pause_ms: int, now_ms: int) -> None:
        """Note that writes wait from now on; a repetition lengthens the pause."""
        ticket.phase = Phase.PAUSED
        ticket.pause_deadline_ms = now_ms + max(1, min(pause_ms, PAUSE_MS_MAX))
        ticket.deadline_ms = max(ticket.deadline_ms, ticket.pause_deadline_ms)

    def use(self, ticket: Ticket) -> None:
        """Note that the step which cannot be undone is done."""
        ticket.phase = Phase.USED
        ticket.pause_deadline_ms = None

    def end(self, ticket_id: str) -> Ticket | None:
        """End the ticket, if this node holds it; in any case no step accepts it any more."""
        if ticket_id not in self._ended:
            self._ended.append(ticket_id)
        ticket = self.ticket
        if ticket is None or ticket.ticket_id != ticket_id:
            return None
        self.ticket = None
        return ticket

    def expire(self, now_ms: int) -> Ticket | None:
        """End the ticket if its deadline has come, and return it with its last phase; else None."""
        deadline_ms, ticket = self.next_deadline_ms, self.ticket
        if ticket is None or deadline_ms is None or now_ms < deadline_ms:
            return None
        return self.end(ticket.ticket_id)


def _no_ticket(ticket_id: str) -> CommandError:
    return no_permission(
        f"ticket {ticket_id:.32} is not valid here: it has expired, was given back, or this node "
        "was started since; nothing was changed"
    )

"""Operators' requests to a Raft member: its status (30045), and changes by the leader (30047).

The body of 30047 is a msgpack map: ``do`` is transfer, add, promote or remove; ``member`` the id of
the member; ``address`` (add only) that member's host:port. The answer comes when the outcome is
known:

    SUCCESS         a new leader was elected, or the change is committed; msgpack: leader, term
    NO_PERMISSION   rejected, nothing has happened: the remark tells the reason and the leader
    SYSTEM_ERROR    "outcome unknown": the change was begun, and no commit or leader confirmed it
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import attrs
import msgpack

from trioha.dledger.membership import ChangeKind
from trioha.dledger.ready import Role, SoftState
from trioha.errors import RemoteProtocolError, TriohaError
from trioha.remoting.channel import Channel, Handler, Instant
from trioha.remoting.requests import answer_late
from trioha.wire.address import parse_address
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.maps import decode_map
from trioha.wire.refusals import no_permission
from trioha.wire.remoting_command import RemotingCommand

PATIENCE_MS = 5000
"""Longest wait for an outcome: longer than most elections; a change takes one round trip and two
fsyncs."""
TRANSFER = "transfer"
_CHANGES = {
    "add": ChangeKind.ADD_LEARNER,
    "promote": ChangeKind.PROMOTE,
    "remove": ChangeKind.REMOVE,
}


class RaftOperations(Protocol):
    """The part of a member that operators' requests use."""

    @property
    def leader_id(self) -> str: ...
    @property
    def term(self) -> int: ...
    @property
    def transfer_outcome(self) -> tuple[str, str]:
        """Target of the present transfer, and the failure of the last; each "" for none."""

    def status(self) -> dict[str, object]: ...
    def addresses(self) -> dict[str, str]: ...
    def transfer(self, target: str) -> str: ...
    def change(self, kind: ChangeKind, member: str, address: str = "") -> str: ...


@attrs.define(eq=False)
class _Waiting:
    """A request whose outcome is not known yet."""

    channel: Channel
    request: RemotingCommand
    target: str
    """Target of a transfer; empty for a change."""
    deadline_ms: int
    end_offset: int = -1
    """End offset of the change's record; -1 until it is written."""


class RaftAdmin:
    """Handlers of both requests, and the requests that wait for their outcome."""

    def __init__(self, member: RaftOperations) -> None:
        self._member = member
        self._waiting: list[_Waiting] = []

    def handlers(self) -> Mapping[int, Handler]:
        return {
            RequestCode.TRIOHA_RAFT_STATUS: self.status,
            RequestCode.TRIOHA_RAFT_ADMIN: self.administer,
        }

    @property
    def next_deadline_ms(self) -> int | None:
        """Time at which to call `on_time`; None while nobody waits. HOT."""
        if not self._waiting:
            return None
        return min(one.deadline_ms for one in self._waiting)

    def status(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        return request.response(body=msgpack.packb(self._member.status()))

    def administer(self, channel: Channel, request: RemotingCommand, instant: Instant) -> None:
        """Begin a transfer or a change; the answer comes later.

        Errors: CommandError if it is rejected; RemoteProtocolError if the body is no request.
        """
        do, member, address = _read(request)
        waiting = _Waiting(
            channel, request, member if do == TRANSFER else "", instant.now_ms + PATIENCE_MS
        )
        # Queued before it begins: a group of one member commits within the call.
        self._waiting.append(waiting)
        if do == TRANSFER:
            obstacle = self._member.transfer(member)
        else:
            obstacle = self._member.change(_CHANGES[do], member, address)
        if obstacle:
            self._waiting.remove(waiting)
            leader = self._member.leader_id
            at = self._member.addresses().get(leader, "")
            raise no_permission(f"{obstacle} ({leader} is at {at})" if at else obstacle)

    def channel_closed(self, channel: Channel) -> None:
        self._waiting = [one for one in self._waiting if one.channel is not channel]

    def change_appended(self, end_offset: int) -> None:
        """Note that the one change in progress is in the log."""
        for one in self._waiting:
            if not one.target and one.end_offset < 0:
                one.end_offset = end_offset

    def on_commit(self, committed_offset: int) -> None:
        for one in list(self._waiting):
            if not one.target and 0 <= one.end_offset <= committed_offset:
                self._succeed(one)

    def on_soft_state(self, soft: SoftState) -> None:
        """Answer after a change of role or leader; `on_commit` of the same pass came before."""
        for one in list(self._waiting):
            if one.target and soft.leader_id == one.target:
                self._succeed(one)
            elif one.target and soft.leader_id:
                self._refuse(one, f"{soft.leader_id} has become the leader, not {one.target}")
            elif not one.target and soft.role is not Role.LEADER:
                self._unknown(one, f"this member became {soft.role.value}: {soft.reason}")

    def on_time(self, now_ms: int) -> None:
        """Answer those whose transfer has failed, or who have waited long enough."""
        if not self._waiting:
            return
        handing_to, failure = self._member.transfer_outcome
        for one in list(self._waiting):
            if one.target and failure and handing_to != one.target:
                self._refuse(one, f"{failure}; the leader goes on")
            elif now_ms >= one.deadline_ms:
                self._unknown(one, f"no majority in {PATIENCE_MS / 1000:g} s")

    def _succeed(self, one: _Waiting) -> None:
        member = self._member
        leader = one.target or member.leader_id
        body: bytes = msgpack.packb({"leader": leader, "term": member.term})
        self._answer(one, one.request.response(body=body))

    def _refuse(self, one: _Waiting, why: str) -> None:
        self._answer(one, one.request.response(ResponseCode.NO_PERMISSION, why))

    def _unknown(self, one: _Waiting, why: str) -> None:
        remark = f"outcome unknown: {why}; see `trioha raft status`"
        self._answer(one, one.request.response(ResponseCode.SYSTEM_ERROR, remark))

    def _answer(self, one: _Waiting, response: RemotingCommand) -> None:
        self._waiting.remove(one)
        answer_late(one.channel, one.request, response)


def _read(request: RemotingCommand) -> tuple[str, str, str]:
    fields = decode_map(request.body_bytes(), "the body of a Raft request")
    do, member, address = (fields.get(name, "") for name in ("do", "member", "address"))
    if not all(type(one) is str for one in (do, member, address)) or not member:
        raise RemoteProtocolError("a Raft request must name an action and a member")
    if do != TRANSFER and do not in _CHANGES:
        raise no_permission(f"{do[:40]!r} is no action; use transfer, add, promote or remove")
    if do == "add":
        try:
            parse_address(address)
        except TriohaError as error:
            raise no_permission(
                f"{member} cannot be added without its address, host:port: {error}"
            ) from error
    return do, member, address

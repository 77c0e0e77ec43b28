"""Requests of operators to a member, and when each is answered with its outcome."""

from __future__ import annotations

from typing import cast

import msgpack
import pytest

from trioha.broker.raft.admin import PATIENCE_MS, RaftAdmin
from trioha.dledger.membership import ChangeKind
from trioha.dledger.ready import Role, SoftState
from trioha.errors import CommandError, RemoteProtocolError
from trioha.remoting.channel import Channel, Instant
from trioha.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

_NOW = Instant(1000, 0)


class Member:
    """Does what it is told to."""

    leader_id = "n0"
    term = 4

    def __init__(self) -> None:
        self.obstacle = ""
        self.asked: list[tuple[object, ...]] = []
        self.transfer_outcome = ("", "")

    def status(self) -> dict[str, object]:
        return {"role": "LEADER"}

    def addresses(self) -> dict[str, str]:
        return {"n0": "h:1"}

    def transfer(self, target: str) -> str:
        self.asked.append(("transfer", target))
        self.transfer_outcome = (target, "")
        return self.obstacle

    def change(self, kind: ChangeKind, member: str, address: str = "") -> str:
        self.asked.append((kind, member, address))
        return self.obstacle


class Asker:
    """A channel that keeps what it is answered."""

    def __init__(self) -> None:
        self.answers: list[RemotingCommand] = []

    def send_nowait(self, command: RemotingCommand) -> None:
        self.answers.append(command)


class Desk:
    def __init__(self) -> None:
        self.member = Member()
        self.admin = RaftAdmin(self.member)
        self.asker = Asker()

    def ask(self, flag: int = 0, **fields: object) -> None:
        body = msgpack.packb(fields)
        request = RemotingCommand(RequestCode.TRIOHA_RAFT_ADMIN, {}, body, flag=flag)
        self.admin.administer(cast("Channel", self.asker), request, _NOW)

    @property
    def answer(self) -> RemotingCommand:
        (answer,) = self.asker.answers
        return answer


def soft(role: Role, leader: str) -> SoftState:
    return SoftState(role, 4, leader, "because")


def test_a_change_is_answered_when_its_record_is_committed() -> None:
    desk = Desk()
    desk.ask(do="add", member="n3", address="h:4")
    assert desk.member.asked == [(ChangeKind.ADD_LEARNER, "n3", "h:4")]
    desk.admin.change_appended(100)
    desk.admin.on_commit(99)
    assert not desk.asker.answers
    desk.admin.on_commit(100)
    assert desk.answer.code == ResponseCode.SUCCESS
    assert msgpack.unpackb(desk.answer.body_bytes()) == {"leader": "n0", "term": 4}
    assert desk.admin.next_deadline_ms is None


def test_a_oneway_change_has_no_answer() -> None:
    desk = Desk()
    desk.ask(ONEWAY_FLAG, do="add", member="n3", address="h:4")
    desk.admin.change_appended(100)
    desk.admin.on_commit(100)
    assert desk.asker.answers == []
    assert desk.admin.next_deadline_ms is None


def test_a_change_whose_leader_steps_down_has_an_unknown_outcome() -> None:
    desk = Desk()
    desk.ask(do="remove", member="n2")
    desk.admin.change_appended(100)
    desk.admin.on_soft_state(soft(Role.FOLLOWER, ""))
    assert desk.answer.code == ResponseCode.SYSTEM_ERROR
    assert (desk.answer.remark or "").startswith("outcome unknown: ")


def test_a_change_without_a_majority_has_an_unknown_outcome() -> None:
    desk = Desk()
    desk.ask(do="promote", member="n2")
    desk.admin.change_appended(100)
    assert desk.admin.next_deadline_ms == 1000 + PATIENCE_MS
    desk.admin.on_time(1000 + PATIENCE_MS - 1)
    assert not desk.asker.answers
    desk.admin.on_time(1000 + PATIENCE_MS)
    assert (desk.answer.remark or "").startswith("outcome unknown: ")


def test_a_transfer_is_answered_when_the_target_leads() -> None:
    desk = Desk()
    desk.ask(do="transfer", member="n1")
    desk.admin.on_soft_state(soft(Role.FOLLOWER, ""))
    assert not desk.asker.answers
    desk.admin.on_soft_state(soft(Role.FOLLOWER, "n1"))
    assert desk.answer.code == ResponseCode.SUCCESS
    assert msgpack.unpackb(desk.answer.body_bytes())["leader"] == "n1"


def test_a_transfer_that_fails_says_that_the_leader_goes_on() -> None:
    desk = Desk()
    desk.ask(do="transfer", member="n1")
    desk.member.transfer_outcome = ("", "n1 did not take over in time")
    desk.admin.on_time(1500)
    assert desk.answer.code == ResponseCode.NO_PERMISSION
    assert desk.answer.remark == "n1 did not take over in time; the leader goes on"


def test_a_transfer_that_somebody_else_won() -> None:
    desk = Desk()
    desk.ask(do="transfer", member="n1")
    desk.admin.on_soft_state(soft(Role.FOLLOWER, "n2"))
    assert desk.answer.code == ResponseCode.NO_PERMISSION


def test_what_is_refused_says_why_and_whom_to_ask() -> None:
    desk = Desk()
    desk.member.obstacle = "n1 is not the leader; ask n0"
    with pytest.raises(CommandError, match=r"ask n0 \(n0 is at h:1\)") as refused:
        desk.ask(do="transfer", member="n2")
    assert refused.value.code == ResponseCode.NO_PERMISSION
    assert desk.admin.next_deadline_ms is None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"do": "transfer"},
        {"do": "transfer", "member": 3},
        {"do": ["add"], "member": "n1"},
        {"do": "explode", "member": "n1"},
        {"do": "add", "member": "n1"},
        {"do": "add", "member": "n1", "address": "nowhere"},
    ],
)
def test_what_makes_no_sense_reaches_nobody(fields: dict[str, object]) -> None:
    desk = Desk()
    with pytest.raises((CommandError, RemoteProtocolError)):
        desk.ask(0, **fields)
    assert not desk.member.asked


@pytest.mark.parametrize("body", [b"", b"\xc1", b"\x93\x01\x02\x03", b"\xff" * 40])
def test_bytes_that_are_no_request(body: bytes) -> None:
    desk = Desk()
    request = RemotingCommand(RequestCode.TRIOHA_RAFT_ADMIN, {}, body)
    with pytest.raises(RemoteProtocolError):
        desk.admin.administer(cast("Channel", desk.asker), request, _NOW)


def test_who_has_gone_is_not_answered() -> None:
    desk = Desk()
    desk.ask(do="remove", member="n2")
    desk.admin.channel_closed(cast("Channel", desk.asker))
    assert desk.admin.next_deadline_ms is None
    desk.admin.change_appended(5)
    desk.admin.on_commit(5)
    assert not desk.asker.answers

"""No member of a real group answers the past as the present, and none stores what was given up.

One client per member asks it all the time, whatever it is at the moment: QUERY_CONSUMER_OFFSET and
GET_MAX_OFFSET, as a stock client does that keeps an old route for 30 seconds.
"""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator

import attrs
import pytest
from raft_drills.drill import QUEUES, TOPIC, cut_group
from raft_drills.faults import host_of, kill, net_of
from raft_drills.hurt_group import HurtGroup, Member
from raft_drills.member_clients import MemberClient
from support.histories.commitlog import stored_messages
from support.histories.messages import make_body
from support.processes.admin import Fields, create_topic, request
from support.processes.namespaces import Host
from support.processes.rig import Processes
from support.processes.status import wait_until

from trioha.client.message import Message, MessageQueue
from trioha.client.send_header import send_command
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand

pytestmark = pytest.mark.slow
QUERY = RequestCode.QUERY_CONSUMER_OFFSET
MAX = RequestCode.GET_MAX_OFFSET
KEEPER = "keeper"
FIELDS: Fields = {"consumerGroup": KEEPER, "topic": TOPIC, "queueId": 0}
_CLOSING = {"04", "09", "0B"}  # FIN_WAIT1, LAST_ACK, CLOSING (net/tcp_states.h of Linux)
ASKED = 50
"""Answers after which a member has been asked often enough to have shown what it does."""


@attrs.define
class Present:
    """Values that members have acknowledged so far."""

    values: dict[RequestCode, int] = attrs.Factory(lambda: {QUERY: 0, MAX: 0})
    number: int = 0

    def advance(self, member: Member) -> None:
        """One more message and one more commit, both acknowledged by this member."""
        name = f"present-{self.number}"
        self.number += 1
        command = send_command(
            *(KEEPER, Message(TOPIC, make_body(name, 100)), name),
            *(MessageQueue(TOPIC, "", 0), int(time.time() * 1000)),
        )
        answer = request(member.address, command)
        assert answer.code == ResponseCode.SUCCESS, f"{answer.code} {answer.remark}"
        self.values[MAX] = answer.ext_int("queueOffset") + 1
        offset = self.values[QUERY] + 10
        update = RemotingCommand(
            RequestCode.UPDATE_CONSUMER_OFFSET, {**FIELDS, "commitOffset": offset}
        )
        answer = request(member.address, update)
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        self.values[QUERY] = offset


class Asker(MemberClient):
    """Asks one member for the present, and compares the answers with what was acknowledged."""

    def __init__(self, member: Member, present: Present) -> None:
        super().__init__(member.member_id, member.address, "ask")
        self.answers: Counter[str] = Counter()
        self.stale: list[str] = []
        self._present = present
        self._pause = threading.Event()

    def _talk(self, connection: socket.socket) -> None:
        for code in (QUERY, MAX):
            before = self._present.values[code]
            answer = self._ask(connection, RemotingCommand(code, dict(FIELDS)))
            if answer.code == ResponseCode.SUCCESS:
                self.answers["told"] += 1
                offset = answer.ext_int("offset")
                if offset < before:
                    self.stale.append(f"{self.name} {code.name}: {offset}, acknowledged {before}")
            else:
                self.answers["rejected"] += 1
                if code == QUERY:
                    self.stale.append(f"{self.name} {code.name}: code {answer.code}")
        self._pause.wait(0.002)

    def _lost(self, reason: str) -> None:
        self.answers["closed"] += 1

    @property
    def rejected(self) -> int:
        """Questions that got no value."""
        return self.answers["rejected"] + self.answers["closed"]


@contextlib.contextmanager
def asked(group: HurtGroup, present: Present) -> Iterator[dict[str, Asker]]:
    """Ask every member while the block runs; none may have answered the past."""
    askers = {member.member_id: Asker(member, present) for member in group.members}
    for asker in askers.values():
        asker.start()
    try:
        yield askers
    finally:
        for asker in askers.values():
            asker.ask_to_stop()
        for asker in askers.values():
            asker.stop()
        print({name: dict(asker.answers) for name, asker in askers.items()})
    stale = [line for asker in askers.values() for line in asker.stale]
    assert not stale, (len(stale), stale[:3])


@pytest.fixture
def cut(processes: Processes) -> Iterator[HurtGroup]:
    with cut_group(processes) as group:
        create_topic(group.leader.address, group.namesrv, TOPIC, QUEUES)
        yield group


def separate(group: HurtGroup, member: Member) -> None:
    """From the other members, both ways; clients still reach it."""
    for other in group.others(member):
        net_of(group).separate(host_of(group, member), host_of(group, other))


def told_more(asker: Asker) -> None:
    """Wait until a member has answered with values again."""
    before = asker.answers["told"]
    wait_until("values from it again", lambda: asker.answers["told"] > before + ASKED)


def test_a_leader_that_is_cut_off_both_ways_never_answers_what_was_before(cut: HurtGroup) -> None:
    present = Present()
    old = cut.leader
    present.advance(old)
    with asked(cut, present) as askers:
        told_more(askers[old.member_id])
        separate(cut, old)
        wait_until("the old one has stepped down", lambda: old.raft()["role"] != "LEADER")
        wait_until("another leads", lambda: cut.leader_or_none() or cut.describe())
        new = cut.leader
        assert new is not old
        present.advance(new)
        asker = askers[old.member_id]
        told = asker.answers["told"]
        rejected = asker.rejected
        # Once parking is over it rejects at once.
        wait_until("it has rejected many", lambda: asker.rejected > rejected + ASKED)
        for _ in range(20):
            present.advance(new)
        assert asker.answers["told"] == told, "it has answered without a leader"
        net_of(cut).heal()
        cut.wait_whole()
        told_more(asker)
        present.advance(cut.leader)
        told_more(asker)


def test_a_leader_that_was_killed_answers_nothing_before_it_hears_of_a_leader(
    cut: HurtGroup,
) -> None:
    present = Present()
    old = cut.leader
    present.advance(old)
    with asked(cut, present) as askers:
        asker = askers[old.member_id]
        kill(cut, old)
        new = cut.wait_serving()
        for _ in range(3):
            present.advance(new)
        # First alone, then with its leader in reach.
        separate(cut, old)
        old.node.start()
        rejected = asker.rejected
        told = asker.answers["told"]
        wait_until("it has rejected many", lambda: asker.rejected > rejected + ASKED)
        assert asker.answers["told"] == told, "it has answered without a leader"
        net_of(cut).heal()
        told_more(asker)
        for _ in range(3):
            kill(cut, old)
            present.advance(cut.wait_serving())
            old.node.start()
            told_more(asker)


def test_a_send_that_its_sender_gave_up_is_not_stored_behind_a_later_one(cut: HurtGroup) -> None:
    """It lay in a kernel between two members; a minute later the network was whole again."""
    present = Present()
    leader = cut.leader
    present.advance(leader)
    follower = cut.others(leader)[0]
    # The connection over which the follower forwards for this client stands by then.
    client = GivesUp(follower)
    client.send("through")
    net_of(cut).separate(host_of(cut, follower), host_of(cut, leader))
    client.give_up("given-up")
    present.advance(leader)
    net_of(cut).heal()
    wait_until("nothing is on its way", lambda: not closing_connections(host_of(cut, follower)))
    cut.wait_whole()
    cut.wait_level()
    names = [stored.name for stored in stored_messages(leader.node.commitlog, TOPIC)]
    assert "through" in names
    assert "given-up" not in names


def closing_connections(host: Host) -> list[str]:
    """Connections of a host that its processes have closed and its kernel still delivers."""
    command = [*host.prefix, "cat", "/proc/net/tcp"]
    table = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [line.split() for line in table.splitlines()[1:]]
    return [row[1] for row in rows if row[3] in _CLOSING]


class GivesUp(MemberClient):
    """A client with one connection, in the thread of its caller."""

    def __init__(self, member: Member) -> None:
        super().__init__(member.member_id, member.address, "give-up")
        self._connection = socket.create_connection(self._address, 5.0)

    def send(self, name: str) -> None:
        answer = self._ask(self._connection, self._put(name))
        assert answer.code == ResponseCode.SUCCESS, f"{answer.code} {answer.remark}"

    def give_up(self, name: str) -> None:
        """Send, wait for an answer that does not come, and close."""
        self._connection.settimeout(0.5)
        with pytest.raises(TimeoutError):
            self._ask(self._connection, self._put(name))
        self._connection.close()

    def _put(self, name: str) -> RemotingCommand:
        message = Message(TOPIC, make_body(name, 100))
        queue = MessageQueue(TOPIC, "", 0)
        return send_command(KEEPER, message, name, queue, int(time.time() * 1000))

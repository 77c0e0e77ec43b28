"""Role of a member for clients, pass by pass: a real broker, and a scripted member."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import attrs
import trio
import trio.testing
from support.handlers.sending import FakeChannel
from support.nodes.live_group import member_config
from support.nodes.live_node import send_request

from trioha.broker.raft.answers import ANSWERS, PRESENT
from trioha.broker.set_modes import ACCOUNT_QUESTIONS, ACCOUNTS
from trioha.dledger.ready import Role, SoftState
from trioha.remoting.mode import Mode
from trioha.services.loop.clock import Clock
from trioha.services.loop.ringing import ring
from trioha.services.node.broker_node import BrokerNode
from trioha.services.node.listeners import BrokerAddresses
from trioha.services.raft.member import RaftMember
from trioha.services.raft.opening import open_raft_broker
from trioha.services.raft.reads import CurrentReads
from trioha.services.raft.replication import GroupReplication
from trioha.services.raft.role import PARKED_MS_MAX
from trioha.services.raft.role_tasks import run_role
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import ONEWAY_FLAG, PullSysFlag, RequestCode, ResponseCode
from trioha.wire.names import OUTCOME_UNKNOWN
from trioha.wire.remoting_command import ExtValue, RemotingCommand

NOTIFIED = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED


@attrs.define(eq=False)
class ToldMember:
    """Member in the state that the test sets."""

    term: int = 1
    is_serving: bool = False
    may_append: bool = False
    has_lease: bool = True
    resigned: list[str] = attrs.Factory(list)

    def addresses(self) -> dict[str, str]:
        return {"n0": "127.0.0.1:1", "n1": "127.0.0.1:2"}

    def log_grown(self) -> None:
        pass

    def resign(self, reason: str) -> None:
        self.resigned.append(reason)

    def read(self, on_ready: Callable[[int], None]) -> None:
        on_ready(0 if self.has_lease else -1)


@attrs.define(eq=False)
class Told:
    """A node, its member, and a client."""

    node: BrokerNode
    replication: GroupReplication
    member: ToldMember
    events: RecordedEvents
    channel: FakeChannel = attrs.Factory(FakeChannel)

    async def lead(self) -> None:
        self.member.is_serving = self.member.may_append = True
        self.replication.on_soft_state(SoftState(Role.LEADER, self.member.term, "n0", "elected"))
        self.replication.on_settled()
        await trio.testing.wait_all_tasks_blocked()
        assert self.replication.group_role.serving
        self.replication.on_commit(self.node.store.max_phy_offset)

    def lose(self, leader_id: str = "") -> None:
        self.member.is_serving = self.member.may_append = False
        self.member.term += 1
        role = Role.FOLLOWER if leader_id else Role.PRE_CANDIDATE
        self.replication.on_soft_state(SoftState(role, self.member.term, leader_id, "lost"))
        self.replication.on_settled()

    def ask(self, request: RemotingCommand) -> None:
        node = self.node
        with node.server.outboxes.batch():
            response = node.gate.handle(self.channel, request, node.clock.instant())
            if response is not None and not request.is_oneway:
                self.channel.send_nowait(response)
            node.after_batch()

    @property
    def answers(self) -> list[tuple[int, str | None]]:
        return [(answer.code, answer.remark) for answer in self.channel.sent]


@asynccontextmanager
async def told(root: Path) -> AsyncIterator[Told]:
    config = member_config(root, "n0-127.0.0.1:1;n1-127.0.0.1:2", 0, 1)
    addresses = BrokerAddresses(listen="127.0.0.1:1", ha_listen="", vip_listen="")
    events = RecordedEvents()
    node = await open_raft_broker(config, addresses, Clock.virtual(), events)
    member = ToldMember()
    replication = cast("GroupReplication", node.replication)
    replication.member = cast("RaftMember", member)
    replication.reads = CurrentReads(
        node.core.handlers,
        member.read,
        replication.raft_metadata.uncommitted_end,
        replication.group_role.not_read,
        node.events,
        node.traffic,
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(run_role, replication.group_role)
        nursery.start_soon(ring, replication.parked_alarm)
        yield Told(node, replication, member, events)
        nursery.cancel_scope.cancel()
    await node.close()


async def test_a_put_is_answered_by_the_commit_and_not_before(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with told(tmp_path) as it:
        await it.lead()
        it.ask(send_request())
        assert it.answers == []
        node = it.node
        assert node.store.max_offset_in_queue("T", 0) == 0
        it.replication.on_commit(node.store.max_phy_offset)
        assert it.answers == [(ResponseCode.SUCCESS, None)]
        assert node.store.max_offset_in_queue("T", 0) == 1


async def test_who_waits_hears_unknown_in_the_pass_that_ends_the_leadership(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with told(tmp_path) as it:
        await it.lead()
        it.ask(send_request())
        end = it.node.store.max_phy_offset
        it.lose()
        ((code, remark),) = it.answers
        assert code == ResponseCode.SYSTEM_ERROR
        assert remark is not None
        assert remark.startswith(OUTCOME_UNKNOWN)
        it.ask(send_request())
        assert it.node.store.max_phy_offset == end
        assert len(it.answers) == 1  # parked


async def test_what_is_parked_is_refused_when_nobody_leads_for_long(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with told(tmp_path) as it:
        await it.lead()
        it.lose()
        it.ask(send_request())
        await trio.sleep(PARKED_MS_MAX / 1000 - 0.1)
        assert it.answers == []
        await trio.sleep(0.2)
        assert it.answers == [
            (
                ResponseCode.SERVICE_NOT_AVAILABLE,
                "this group has no leader at the moment; try again",
            )
        ]
        it.ask(send_request())
        assert it.answers[1][0] == ResponseCode.SERVICE_NOT_AVAILABLE


async def test_what_is_parked_is_answered_here_if_this_node_leads_again(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with told(tmp_path) as it:
        await it.lead()
        it.lose()
        it.ask(send_request())
        await it.lead()
        assert it.answers == [(ResponseCode.SUCCESS, None)]


async def test_while_the_leadership_is_handed_over_nothing_is_appended(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with told(tmp_path) as it:
        await it.lead()
        end = it.node.store.max_phy_offset
        it.member.may_append = False
        it.replication.on_settled()
        it.ask(send_request())
        heartbeat = b'{"clientID":"c","producerDataSet":[],"consumerDataSet":[{"groupName":"g",'
        heartbeat += b'"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING",'
        heartbeat += b'"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET","subscriptionDataSet":[]}]}'
        it.ask(RemotingCommand(RequestCode.HEART_BEAT, body=heartbeat))
        assert it.node.store.max_phy_offset == end
        it.member.may_append = True
        it.replication.on_settled()
        it.replication.on_commit(it.node.store.max_phy_offset)
        assert it.node.store.max_offset_in_queue("T", 0) == 1
        answers = [code for code, _ in it.answers if code != NOTIFIED]
        assert answers == [ResponseCode.SUCCESS, ResponseCode.SUCCESS]


async def test_a_leader_without_a_majority_answers_no_question_that_must_be_current(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    request = RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": "T", "queueId": 0})
    async with told(tmp_path) as it:
        await it.lead()
        it.ask(request)
        it.member.has_lease = False
        it.ask(request)
        assert [code for code, _ in it.answers] == [
            ResponseCode.SUCCESS,
            ResponseCode.SERVICE_NOT_AVAILABLE,
        ]


async def test_a_node_that_is_to_end_does_not_begin_to_serve(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with told(tmp_path) as it:
        it.node.stopping = True
        it.member.is_serving = it.member.may_append = True
        it.replication.on_settled()
        await trio.testing.wait_all_tasks_blocked()
        assert not it.replication.group_role.serving
        assert it.member.resigned == ["the broker is shutting down"]


async def test_the_journal_has_every_role_from_the_start_on(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with told(tmp_path) as it:
        await it.lead()
        it.lose()
        roles = [(row["role"], row["broker_id"]) for row in it.events.of("role")]
        assert roles == [("SLAVE", 1), ("SYNC_MASTER", 0), ("SLAVE", 1)]


async def test_name_servers_hear_of_a_new_role_with_its_term(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with told(tmp_path) as it:
        registration = it.node.registration
        assert (registration.identity.broker_id, registration.identity.epoch) == (1, 0)
        it.member.term = 7
        await it.lead()
        assert (registration.identity.broker_id, registration.identity.epoch) == (0, 7)
        it.lose("n1")
        assert (registration.identity.broker_id, registration.identity.epoch) == (1, 0)


QUERY: dict[str, ExtValue] = {"consumerGroup": "g", "topic": "T", "queueId": 0}


def query() -> RemotingCommand:
    return RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, dict(QUERY))


def commit_of(offset: int) -> RemotingCommand:
    return RemotingCommand(
        RequestCode.UPDATE_CONSUMER_OFFSET, {**QUERY, "commitOffset": offset}, flag=ONEWAY_FLAG
    )


async def test_every_request_of_a_member_has_its_decision(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with told(tmp_path) as it:
        assert it.node.gate.handlers.keys() == ANSWERS.keys() - {*ACCOUNTS, *ACCOUNT_QUESTIONS}


async def test_no_request_about_the_present_is_answered_before_a_leader_is_known(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with told(tmp_path) as it:
        gate, answering = it.node.gate, {Mode.SERVE, Mode.SERVE_AND_COPY, Mode.CONFIRM}
        for code in PRESENT:
            assert gate.mode_of(code) not in answering
        await it.lead()
        it.lose()
        for code in PRESENT:
            assert gate.mode_of(code) not in answering
        await trio.sleep(PARKED_MS_MAX / 1000 + 1)
        for code in PRESENT:
            assert gate.mode_of(code) not in answering


async def test_a_consumer_that_cannot_be_told_its_offset_loses_its_connection(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Any error code makes stock consumers begin where a new group begins."""
    async with told(tmp_path) as it:
        await trio.testing.wait_all_tasks_blocked()
        it.ask(query())
        await trio.sleep(PARKED_MS_MAX / 1000 - 0.1)
        parked = not it.channel.closed
        assert parked
        await trio.sleep(0.2)
        assert it.channel.closed
        assert it.answers == []


async def test_an_answer_waits_until_what_it_shows_is_committed(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with told(tmp_path) as it:
        await it.lead()
        it.ask(send_request())
        it.ask(commit_of(7))
        it.ask(query())
        assert it.answers == []
        it.replication.on_commit(it.node.store.max_phy_offset)
        assert [answer.ext_int("offset", -1) for answer in it.channel.sent] == [-1, 7]


async def test_an_answer_that_shows_what_may_be_cut_is_not_given_by_a_deposed_leader(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with told(tmp_path) as it:
        await it.lead()
        it.ask(send_request())
        it.replication.on_commit(it.node.store.max_phy_offset)
        it.ask(commit_of(9))
        it.ask(query())
        it.lose()
        assert len(it.answers) == 1
        it.replication.on_commit(it.node.store.max_phy_offset)
        assert len(it.answers) == 1
        await it.lead()
        it.replication.on_commit(it.node.store.max_phy_offset)
        assert [answer.ext_int("offset", -1) for answer in it.channel.sent] == [-1, 9]


async def test_a_leader_that_is_not_sure_moves_no_consumer_back(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    request = RemotingCommand(
        RequestCode.PULL_MESSAGE,
        {
            **QUERY,
            "queueOffset": 40,
            "maxMsgNums": 1,
            "sysFlag": PullSysFlag.SUBSCRIPTION,
            "subscription": "*",
        },
    )
    async with told(tmp_path) as it:
        await it.lead()
        it.ask(send_request())
        it.replication.on_commit(it.node.store.max_phy_offset)
        it.member.has_lease = False
        it.ask(request)
        it.member.has_lease = True
        it.ask(request)
        answers = [(one.code, one.ext_int("nextBeginOffset")) for one in it.channel.sent[1:]]
        assert answers == [
            (ResponseCode.PULL_RETRY_IMMEDIATELY, 40),
            (ResponseCode.PULL_OFFSET_MOVED, 1),
        ]

"""The façade: what it refuses, what it never does, and a group of one."""

from __future__ import annotations

from random import Random

import attrs
import pytest

from trioha.dledger import messages as say
from trioha.dledger.entry_dispatcher import SPARE_BYTES
from trioha.dledger.member_state import Recovered
from trioha.dledger.membership import (
    ChangeKind,
    Configuration,
    ConfigurationRows,
    ConfigurationTable,
)
from trioha.dledger.node import RaftNode
from trioha.dledger.ready import HardState, Ready, Role
from trioha.dledger.settings import RaftSettings
from trioha.dledger.term_table import TermTable
from trioha.errors import ConfigError, LocalProtocolError, RemoteProtocolError
from trioha.wire.remoting_command import Buffer


class _Log:
    """Bytes in memory; every byte is a record."""

    def __init__(self) -> None:
        self.data = bytearray()

    def read(self, phy_offset: int, size_max: int) -> bytes:
        return bytes(self.data[phy_offset : phy_offset + size_max])

    def is_boundary(self, phy_offset: int) -> bool:
        return True

    def configurations_in(self, phy_offset: int, term: int, body: Buffer) -> ConfigurationRows:
        return ()

    def objection_to_begin(self, phy_offset: int) -> str:
        return ""


def _node(
    *voters: str, settings: RaftSettings | None = None, recovered: Recovered | None = None
) -> tuple[RaftNode, _Log]:
    log = _Log()
    recovered = recovered or Recovered(
        configurations=ConfigurationTable(((0, Configuration.of(*voters)),))
    )
    return RaftNode("n0", settings or RaftSettings(), recovered, log, Random(1), 0), log


def _of_term_one(end_offset: int, *, committed_offset: int = 0) -> Recovered:
    """A member of three, all of whose bytes are of term 1."""
    return Recovered(
        hard_state=HardState(term=1, committed_offset=committed_offset),
        terms=TermTable(((1, 0),)),
        configurations=ConfigurationTable(((0, Configuration.of("n0", "n1", "n2")),)),
        end_offset=end_offset,
    )


def _drain(node: RaftNode, log: _Log, now_ms: int) -> list[Ready]:
    """Do what the node wants; return it."""
    done = []
    while (ready := node.ready()) is not None:
        done.append(ready)
        ends = []
        for control in ready.controls:
            log.data += b"!"
            ends.append((control, len(log.data)))
        node.advance(ready)
        for control, end in ends:
            node.control_appended(control, end, now_ms)
    return done


def _said(done: list[Ready]) -> list[say.RaftMessage]:
    return [message for ready in done for message in ready.messages]


def _leader_of_one() -> tuple[RaftNode, _Log]:
    node, log = _node("n0")
    node.on_time(5000)
    _drain(node, log, 5000)
    node.flushed(len(log.data), 0, 5000)
    _drain(node, log, 5000)
    return node, log


def _leader_of_three() -> tuple[RaftNode, _Log]:
    """Return the leader of term 1; its opening record is fsynced here and nowhere else."""
    node, log = _node("n0", "n1", "n2")
    node.on_time(5000)
    _drain(node, log, 5000)
    node.step(say.VoteResponse("n1", "n0", 1, True, True), 5001)
    _drain(node, log, 5001)
    node.step(say.VoteResponse("n1", "n0", 1, False, True), 5002)
    _drain(node, log, 5002)
    node.flushed(len(log.data), 0, 5003)
    _drain(node, log, 5003)
    assert node.state.role is Role.LEADER
    return node, log


def test_every_round_of_a_member_that_is_answered_by_nobody_counts() -> None:
    """The member's role stays as it is from one round to the next."""
    node, log = _node("n0", "n1", "n2")
    for round_ in range(1, 4):
        node.on_time(5000 * round_)
        asked = [one for one in _said(_drain(node, log, 5000 * round_)) if one.target == "n1"]
        assert [type(one) for one in asked] == [say.VoteRequest]
        assert (node.state.role, node.state.election_rounds) == (Role.PRE_CANDIDATE, round_)


def test_a_group_of_one_elects_itself_and_commits_after_its_fsync() -> None:
    node, log = _node("n0")
    node.on_time(5000)
    done = _drain(node, log, 5000)
    assert done[0].hard_state == HardState(1, "n0")
    assert node.state.role is Role.LEADER
    assert not node.status().is_serving
    node.flushed(1, 0, 5001)
    assert node.status().is_serving
    assert _drain(node, log, 5001)[-1].committed_offset == 1


def test_term_and_vote_come_before_the_message_that_needs_them() -> None:
    node, log = _node("n0", "n1", "n2")
    node.step(say.VoteRequest("n1", "n0", 3, False, False, 0, 0), 5000)
    ready = _drain(node, log, 5000)[0]
    assert ready.hard_state == HardState(3, "n1")
    assert ready.messages == (say.VoteResponse("n0", "n1", 3, False, True),)


def test_nothing_is_said_on_the_strength_of_what_could_not_be_saved() -> None:
    node, log = _node("n0", "n1", "n2")
    node.step(say.VoteRequest("n1", "n0", 3, False, False, 0, 0), 5000)
    node.ready()
    node.storage_failed("no space left", 5000)
    assert _said(_drain(node, log, 5000)) == []
    node.step(say.VoteRequest("n1", "n0", 4, False, False, 0, 0), 5001)
    (answer,) = _said(_drain(node, log, 5001))
    assert isinstance(answer, say.VoteResponse)
    assert not answer.granted
    node.on_time(50_000)
    assert node.state.role is Role.FOLLOWER


def test_a_pre_vote_changes_nothing() -> None:
    node, log = _node("n0", "n1", "n2")
    node.step(say.VoteRequest("n1", "n0", 1, True, False, 0, 0), 5000)
    (ready,) = _drain(node, log, 5000)
    assert ready.hard_state is None
    assert node.state.term == 0


def test_bytes_are_acknowledged_when_they_are_on_the_disk() -> None:
    node, log = _node("n0", "n1", "n2")
    node.step(say.Append("n1", "n0", 1, 1, 0, 0, 1, 0, b"abc"), 5000)
    assert _said(_drain(node, log, 5000)) == []
    node.flushed(3, 0, 5002)
    (answer,) = _said(_drain(node, log, 5002))
    assert isinstance(answer, say.PushResponse)
    assert (answer.matched_offset, answer.held_offset) == (3, 3)


def test_a_leader_waits_for_its_fsync_only_while_a_follower_holds_more() -> None:
    """Otherwise the commit needs a follower's answer, and the fsync is heard of with that."""
    node, log = _level_leader(RaftSettings())
    waits = [node.awaits_flush]
    log.data += b"abc"
    node.appended(4, 5004)
    _drain(node, log, 5004)
    waits.append(node.awaits_flush)
    _answer(node, "n1", 0, 4, 4, 5005)
    waits.append(node.awaits_flush)
    assert node.state.committed_offset == 1
    node.flushed(4, 0, 5006)
    waits.append(node.awaits_flush)
    assert waits == [False, False, True, False]
    assert _drain(node, log, 5006)[-1].committed_offset == 4


def test_a_follower_and_a_leader_alone_wait_for_every_fsync() -> None:
    assert _node("n0", "n1", "n2")[0].awaits_flush
    assert _leader_of_one()[0].awaits_flush


def _commits(done: list[Ready]) -> list[tuple[str, int]]:
    """Return target and committed offset of each push without bytes."""
    return [
        (message.target, message.committed_offset)
        for message in _said(done)
        if isinstance(message, say.Append) and not message.body
    ]


def _level_leader(settings: RaftSettings) -> tuple[RaftNode, _Log]:
    """Return a leader of n1 and n2, which hold its whole log and were told of the commit."""
    node, log = _node("n0", "n1", "n2", settings=settings)
    node.on_time(5000)
    _drain(node, log, 5000)
    for is_pre in (True, False):
        node.step(say.VoteResponse("n1", "n0", 1, is_pre, True), 5001)
        _drain(node, log, 5001)
    node.flushed(1, 0, 5001)
    for member in ("n1", "n2"):
        _answer(node, member, 1, 0, 0, 5002, say.PushType.COMPARE)
        _drain(node, log, 5002)
        _answer(node, member, 0, 1, 1, 5003)
        _drain(node, log, 5003)
    return node, log


def _answer(
    node: RaftNode,
    member: str,
    sequence: int,
    matched: int,
    held: int,
    now_ms: int,
    kind: say.PushType = say.PushType.APPEND,
) -> None:
    node.step(
        say.PushResponse(*(member, "n0", 1, kind, sequence, say.PushStatus.SUCCESS, matched, held)),
        now_ms,
    )


def _put(node: RaftNode, log: _Log, data: bytes, now_ms: int) -> list[Ready]:
    """Append at the leader, fsync included; return what it wants."""
    log.data += data
    node.appended(len(log.data), now_ms)
    node.flushed(len(log.data), 0, now_ms)
    return _drain(node, log, now_ms)


def _bodies(done: list[Ready]) -> list[tuple[str, bytes]]:
    """Target and bytes of each push that has bytes."""
    return [
        (message.target, bytes(message.body))
        for message in _said(done)
        if isinstance(message, say.Append) and message.body
    ]


def _leader_with_a_spare(settings: RaftSettings | None = None) -> tuple[RaftNode, _Log]:
    """n1 made the newest commit, so n2 is a spare: all have one byte. The next heartbeat is far."""
    node, log = _level_leader(settings or RaftSettings(push_delay_ms=10))
    node.on_time(node.next_deadline_ms)
    _drain(node, log, 5020)
    return node, log


def test_a_commit_goes_along_with_the_next_bytes_or_by_itself_after_its_delay() -> None:
    node, log = _leader_with_a_spare()
    _put(node, log, b"ab", 5021)
    _answer(node, "n1", 0, 3, 3, 5022)
    done = _drain(node, log, 5022)
    assert done[-1].committed_offset == 3
    assert _commits(done) == []
    done = _put(node, log, b"cd", 5024)
    appends = [one for one in _said(done) if isinstance(one, say.Append)]
    assert [(one.target, one.prev_offset, one.committed_offset) for one in appends] == [
        ("n1", 3, 3)
    ]
    _answer(node, "n1", 0, 5, 5, 5026)
    assert _commits(_drain(node, log, 5026)) == []
    assert node.next_deadline_ms == 5031
    node.on_time(5031)
    assert _commits(_drain(node, log, 5031)) == [("n1", 5)]
    _answer(node, "n2", 0, 5, 5, 5032)
    assert _said(_drain(node, log, 5032)) == []
    assert node.next_deadline_ms > 5042


def test_bytes_wait_for_a_follower_that_no_majority_needs_but_not_longer_than_their_delay() -> None:
    node, log = _leader_with_a_spare()
    assert _bodies(_put(node, log, b"ab", 5021)) == [("n1", b"ab")]
    assert _bodies(_put(node, log, b"cd", 5025)) == [("n1", b"cd")]
    assert node.next_deadline_ms == 5031
    node.on_time(5031)
    assert _bodies(_drain(node, log, 5031)) == [("n2", b"abcd")]
    assert _bodies(_put(node, log, b"ef", 5040)) == [("n1", b"ef")]
    assert node.next_deadline_ms == 5050, "the delay begins with the first byte that waits"


def test_many_bytes_wait_for_nobody() -> None:
    node, log = _leader_with_a_spare()
    assert [target for target, _ in _bodies(_put(node, log, bytes(SPARE_BYTES - 1), 5021))] == [
        "n1"
    ]
    assert dict(_bodies(_put(node, log, b"!", 5022))) == {
        "n1": b"!",
        "n2": bytes(SPARE_BYTES - 1) + b"!",
    }


def test_a_spare_takes_the_place_of_a_follower_that_falls_silent() -> None:
    node, log = _leader_with_a_spare()
    _put(node, log, b"ab", 5021)
    node.on_time(5031)
    assert _bodies(_drain(node, log, 5031)) == [("n2", b"ab")]
    _answer(node, "n2", 0, 3, 3, 5032)
    assert _drain(node, log, 5032)[-1].committed_offset == 3
    assert _bodies(_put(node, log, b"cd", 5033)) == [("n2", b"cd")]
    # n1 answers late and stays a spare as long as n2 makes the commits.
    _answer(node, "n1", 0, 3, 3, 5034)
    assert _bodies(_drain(node, log, 5034)) == []
    _answer(node, "n2", 0, 5, 5, 5035)
    assert _drain(node, log, 5035)[-1].committed_offset == 5
    assert _bodies(_put(node, log, b"ef", 5036)) == [("n2", b"ef")]


def test_a_spare_that_is_behind_gets_all_without_delay() -> None:
    """A window that holds a part only must not be filled once in each delay."""
    settings = RaftSettings(push_delay_ms=10, batch_bytes_max=2, inflight_count_max=1)
    node, log = _leader_with_a_spare(settings)
    _put(node, log, b"abcdef", 5021)
    node.on_time(5031)
    assert ("n2", b"ab") in _bodies(_drain(node, log, 5031))
    for now_ms, end, body in ((5032, 3, b"cd"), (5033, 5, b"ef")):
        _answer(node, "n2", 0, end, end, now_ms)
        assert ("n2", body) in _bodies(_drain(node, log, now_ms))


def test_nothing_waits_for_a_spare_whose_log_is_compared() -> None:
    node, log = _leader_with_a_spare()
    _put(node, log, b"ab", 5021)
    lost = say.PushStatus.INCONSISTENT_STATE
    node.step(say.PushResponse("n2", "n0", 1, say.PushType.APPEND, 0, lost, 1, 1), 5022)
    assert [type(one) for one in _said(_drain(node, log, 5022))] == [say.Compare]
    node.on_time(5031)
    _drain(node, log, 5031)
    _put(node, log, b"cd", 5032)
    assert node.next_deadline_ms > 5042


def test_while_the_leader_s_disk_is_slow_two_followers_make_the_commit() -> None:
    node, log = _leader_with_a_spare()

    def append(data: bytes, now_ms: int) -> list[Ready]:
        log.data += data
        node.appended(len(log.data), now_ms)
        return _drain(node, log, now_ms)

    assert _bodies(append(b"ab", 5021)) == [("n1", b"ab")]
    _answer(node, "n1", 0, 3, 3, 5022)
    node.on_time(5031)
    assert _bodies(_drain(node, log, 5031)) == [("n2", b"ab")]
    _answer(node, "n2", 0, 3, 3, 5032)
    assert _drain(node, log, 5032)[-1].committed_offset == 3
    assert {target for target, _ in _bodies(append(b"cd", 5033))} == {"n1", "n2"}
    for member in ("n1", "n2"):
        _answer(node, member, 0, 5, 5, 5034)
    assert _drain(node, log, 5034)[-1].committed_offset == 5
    # The disk is as fast as the followers' again.
    node.flushed(5, 0, 5035)
    assert len(_bodies(_put(node, log, b"ef", 5036))) == 2
    _answer(node, "n1", 0, 7, 7, 5037)
    assert _drain(node, log, 5037)[-1].committed_offset == 7
    assert [target for target, _ in _bodies(_put(node, log, b"gh", 5038))] == ["n1"]


def test_bytes_do_not_wait_for_a_spare_that_shall_lead() -> None:
    node, log = _leader_with_a_spare()
    _put(node, log, b"ab", 5021)
    _answer(node, "n1", 0, 3, 3, 5022)
    _drain(node, log, 5022)
    assert node.transfer_leadership("n2", 5023) == ""
    assert _bodies(_drain(node, log, 5023)) == [("n2", b"ab")]
    _answer(node, "n2", 0, 3, 3, 5024)
    assert [type(one) for one in _said(_drain(node, log, 5024))] == [say.TimeoutNow]


def test_of_five_members_two_followers_get_bytes_at_once() -> None:
    settings = RaftSettings(push_delay_ms=10)
    followers = ("n1", "n2", "n3", "n4")
    node, log = _node("n0", *followers, settings=settings)
    node.on_time(5000)
    _drain(node, log, 5000)
    for is_pre in (True, False):
        for member in ("n1", "n2"):
            node.step(say.VoteResponse(member, "n0", 1, is_pre, True), 5001)
        _drain(node, log, 5001)
    node.flushed(1, 0, 5001)
    for member in followers:
        _answer(node, member, 1, 0, 0, 5002, say.PushType.COMPARE)
    assert {target for target, _ in _bodies(_drain(node, log, 5002))} == set(followers)
    for member in ("n4", "n2"):
        _answer(node, member, 0, 1, 1, 5003)
    assert _drain(node, log, 5003)[-1].committed_offset == 1
    assert {target for target, _ in _bodies(_put(node, log, b"ab", 5004))} == {"n2", "n4"}


def _asked_by(candidate: str, log_end: int, **more: bool) -> say.VoteRequest:
    return say.VoteRequest(candidate, "n0", 2, True, more.get("by_transfer", False), 1, log_end)


@pytest.mark.parametrize(("log_end", "stands"), [(9, True), (10, False)])
def test_a_member_whose_log_is_newer_than_a_candidate_s_stands_itself(
    log_end: int, stands: bool
) -> None:
    node, log = _node(recovered=_of_term_one(10))
    node.step(_heartbeat("n1"), 1)
    _drain(node, log, 1)
    now_ms = 1 + node.state.settings.election_timeout_min_ms
    deadline_ms = node.next_deadline_ms
    node.step(_asked_by("n2", log_end), now_ms)
    (answer,) = _said(_drain(node, log, now_ms))
    assert isinstance(answer, say.VoteResponse)
    assert answer.granted is not stands
    assert node.next_deadline_ms == (now_ms if stands else deadline_ms)
    if stands:
        node.on_time(now_ms)
        said = _said(_drain(node, log, now_ms))
        assert [one.target for one in said if isinstance(one, say.VoteRequest)] == ["n1", "n2"]


def test_it_does_not_stand_while_it_hears_a_leader() -> None:
    node, log = _node(recovered=_of_term_one(10))
    node.step(_heartbeat("n1"), 1)
    _drain(node, log, 1)
    deadline_ms = node.next_deadline_ms
    node.step(_asked_by("n2", 9), node.state.settings.election_timeout_min_ms)
    assert node.next_deadline_ms == deadline_ms


def test_it_does_not_stand_against_a_candidate_that_the_leader_has_named() -> None:
    node, log = _node(recovered=_of_term_one(10))
    node.step(_heartbeat("n1"), 1)
    _drain(node, log, 1)
    node.step(say.VoteRequest("n2", "n0", 2, False, True, 1, 9), 2)
    (answer,) = _said(_drain(node, log, 2))
    assert isinstance(answer, say.VoteResponse)
    assert not answer.granted
    assert node.next_deadline_ms > node.state.settings.election_timeout_min_ms


def test_a_member_that_stands_already_waits_for_its_answers() -> None:
    node, log = _node(recovered=_of_term_one(10))
    node.on_time(5000)
    _drain(node, log, 5000)
    deadline_ms = node.next_deadline_ms
    node.step(_asked_by("n2", 9), 5001)
    assert node.next_deadline_ms == deadline_ms


def test_members_with_a_newer_log_stand_one_after_the_other() -> None:
    """n1 led, and n2 asks: n3 is the first of the others, n4 the second."""
    members = ("n1", "n2", "n3", "n4", "n5")
    step_ms = RaftSettings().heartbeat_interval_ms // 2
    for member, rank in (("n3", 0), ("n4", 1), ("n5", 2)):
        recovered = attrs.evolve(
            _of_term_one(10),
            configurations=ConfigurationTable(((0, Configuration.of(*members)),)),
        )
        node = RaftNode(member, RaftSettings(), recovered, _Log(), Random(1), 0)
        node.step(say.Heartbeat("n1", member, 1, 0, 0, 1), 1)
        _drain(node, _Log(), 1)
        node.state.election_deadline_ms = 1999
        node.step(say.VoteRequest("n2", member, 2, True, False, 1, 9), 1001)
        assert node.next_deadline_ms == 1001 + rank * step_ms


def test_without_a_delay_a_commit_is_told_at_once() -> None:
    node, log = _level_leader(RaftSettings())
    log.data += b"ab"
    node.appended(3, 5021)
    node.flushed(3, 0, 5021)
    _drain(node, log, 5021)
    _answer(node, "n1", 0, 3, 3, 5022)
    assert _commits(_drain(node, log, 5022)) == [("n1", 3)]


def _heartbeat(leader: str) -> say.Heartbeat:
    return say.Heartbeat(leader, "n0", 1, committed_offset=0, read_round=0, sent_ms=1)


def _heartbeat_answer(member: str, sent_ms: int) -> say.HeartbeatResponse:
    return say.HeartbeatResponse(
        member, "n0", 1, read_round=0, sent_ms=sent_ms, matched_offset=0, held_offset=0
    )


@pytest.mark.parametrize("heard_ms", [5003, 5950])
def test_a_leader_steps_down_once_the_shortest_timeout_has_passed_without_a_majority(
    heard_ms: int,
) -> None:
    """Check-quorum's deadline to the millisecond."""
    for elapsed_ms, role in ((999, Role.LEADER), (1000, Role.FOLLOWER)):
        node, log = _level_leader(RaftSettings(election_timeout_min_ms=1000))
        if heard_ms > 5003:
            # With the leader itself, n2 alone makes a majority of three.
            node.step(_heartbeat_answer("n2", 5900), heard_ms)
            _drain(node, log, heard_ms)
        settings = node.state.settings
        for now_ms in (elapsed_ms - settings.heartbeat_interval_ms, elapsed_ms):
            node.on_time(heard_ms + now_ms)
            _drain(node, log, heard_ms + now_ms)
        assert node.state.role is role, elapsed_ms


@pytest.mark.parametrize("late_ms", [0, RaftSettings().heartbeat_interval_ms])
def test_a_leader_that_was_held_up_asks_once_more_before_it_steps_down(late_ms: int) -> None:
    """Its process stood still: it cannot know yet whether a majority still answers. It asks once,
    however late it sees the next deadline."""
    heartbeat_ms = RaftSettings().heartbeat_interval_ms
    for answers in (True, False):
        node, log = _level_leader(RaftSettings())
        node.on_time(9000)
        asked = [one for one in _said(_drain(node, log, 9000)) if isinstance(one, say.Heartbeat)]
        assert {one.target for one in asked} == {"n1", "n2"}
        assert node.state.role is Role.LEADER
        assert node.status().lease_until_ms < 9000, "nobody's promise covers the standstill"
        if answers:
            node.step(_heartbeat_answer("n2", 9000), 9001)
        now_ms = 9000 + heartbeat_ms + late_ms
        node.on_time(now_ms)
        _drain(node, log, now_ms)
        assert (node.state.role is Role.LEADER) is answers


def test_a_follower_that_was_held_up_listens_once_more_before_it_asks_for_votes() -> None:
    settings = RaftSettings()
    for hears in (True, False):
        node, log = _node("n0", "n1", "n2", settings=settings, recovered=_of_term_one(0))
        node.step(_heartbeat("n1"), 1)
        _drain(node, log, 1)
        late_ms = node.next_deadline_ms + settings.heartbeat_interval_ms
        node.on_time(late_ms)
        assert _said(_drain(node, log, late_ms)) == []
        now_ms = node.next_deadline_ms
        assert now_ms == late_ms + 2 * settings.heartbeat_interval_ms
        if hears:
            node.step(_heartbeat("n1"), now_ms)
        node.on_time(now_ms + settings.heartbeat_interval_ms)
        said = _said(_drain(node, log, now_ms))
        assert any(isinstance(one, say.VoteRequest) for one in said) is not hears


def test_a_follower_listens_once_more_each_time_that_it_was_held_up() -> None:
    settings = RaftSettings()
    node, log = _node("n0", "n1", "n2", settings=settings, recovered=_of_term_one(0))
    now_ms = 1
    for _ in range(2):
        node.step(_heartbeat("n1"), now_ms)
        _drain(node, log, now_ms)
        now_ms = node.next_deadline_ms + settings.heartbeat_interval_ms
        node.on_time(now_ms)
        assert _said(_drain(node, log, now_ms)) == []
        assert node.next_deadline_ms == now_ms + 2 * settings.heartbeat_interval_ms


def test_founders_stand_one_after_the_other_and_wait_for_no_leader() -> None:
    """A group of term 0 never had a leader, so no founder waits for a lease to end."""
    step_ms = RaftSettings().heartbeat_interval_ms
    for rank, member in enumerate(("n0", "n1", "n2")):
        recovered = Recovered(
            configurations=ConfigurationTable(((0, Configuration.of("n0", "n1", "n2")),))
        )
        node = RaftNode(member, RaftSettings(), recovered, _Log(), Random(1), 0)
        assert rank * step_ms <= node.next_deadline_ms <= (rank + 1) * step_ms
        candidate = "n1" if member == "n0" else "n0"
        request = say.VoteRequest(candidate, member, 1, True, False, 0, 0)
        node.step(request, 1)
        (answer,) = _said(_drain(node, _Log(), 1))
        assert isinstance(answer, say.VoteResponse)
        assert answer.granted


def test_a_member_that_comes_back_waits_for_the_leader_it_may_have_heard() -> None:
    node, log = _node("n0", "n1", "n2", recovered=_of_term_one(0))
    assert node.next_deadline_ms >= RaftSettings().election_timeout_min_ms
    node.step(say.VoteRequest("n1", "n0", 2, True, False, 1, 0), 1)
    (answer,) = _said(_drain(node, log, 1))
    assert isinstance(answer, say.VoteResponse)
    assert not answer.granted


def test_a_follower_that_is_on_time_asks_for_votes_at_once() -> None:
    node, log = _node("n0", "n1", "n2", recovered=_of_term_one(0))
    node.step(_heartbeat("n1"), 1)
    _drain(node, log, 1)
    now_ms = node.next_deadline_ms
    node.on_time(now_ms)
    said = _said(_drain(node, log, now_ms))
    assert [one.target for one in said if isinstance(one, say.VoteRequest)] == ["n1", "n2"]


def test_a_leader_of_five_steps_down_at_its_own_deadlines_though_one_follower_answers() -> None:
    """Two of five are no majority. Nothing but `next_deadline_ms` drives the leader."""
    settings = RaftSettings()
    node, log = _node("n0", "n1", "n2", "n3", "n4", settings=settings)
    node.on_time(5000)
    _drain(node, log, 5000)
    for is_pre in (True, False):
        for member in ("n1", "n2"):
            node.step(say.VoteResponse(member, "n0", 1, is_pre, True), 5001)
        _drain(node, log, 5001)
    elected_ms = now_ms = 5001
    while node.state.role is Role.LEADER:
        assert now_ms < node.next_deadline_ms < elected_ms + 10_000, now_ms
        now_ms = node.next_deadline_ms
        node.step(_heartbeat_answer("n1", now_ms - 1), now_ms)
        node.on_time(now_ms)
        _drain(node, log, now_ms)
    late_ms = now_ms - elected_ms - settings.election_timeout_min_ms
    assert 0 <= late_ms < settings.heartbeat_interval_ms, late_ms


def test_replicated_in_memory_acknowledges_at_once() -> None:
    settings = RaftSettings(replicated_in_memory=True)
    node, log = _node("n0", "n1", "n2", settings=settings)
    node.step(say.Append("n1", "n0", 1, 1, 0, 0, 1, 0, b"abc"), 5000)
    (answer,) = _said(_drain(node, log, 5000))
    assert isinstance(answer, say.PushResponse)
    assert answer.held_offset == 3


def test_a_commit_beyond_what_was_compared_is_not_believed() -> None:
    """Fault A6: our log is longer, and of another term."""
    node, log = _node(recovered=_of_term_one(100))
    node.step(say.Heartbeat("n1", "n0", 2, 100, 0, 0), 5000)
    _drain(node, log, 5000)
    assert node.state.committed_offset == 0


def test_a_deposed_leader_cuts_nothing() -> None:
    """Fault A3."""
    node, log = _node("n0", "n1", "n2")
    node.step(say.Append("n1", "n0", 2, 1, 0, 0, 1, 0, b"abc"), 5000)
    _drain(node, log, 5000)
    node.step(say.Truncate("n2", "n0", 1, 9, 0, 0, 7), 5001)
    (answer,) = _said(_drain(node, log, 5001))
    assert answer == say.StaleTerm("n0", "n2", 2)
    assert node.state.end_offset == 3


def test_a_truncate_that_comes_twice_cuts_once() -> None:
    """Fault A2: what has been written since is the leader's own."""
    node, log = _node(recovered=_of_term_one(10))
    truncate = say.Truncate("n1", "n0", 2, 1, 4, 1, 2)
    node.step(truncate, 5000)
    _drain(node, log, 5000)
    assert node.state.end_offset == 4
    node.step(say.Append("n1", "n0", 2, 2, 4, 1, 2, 0, b"abc"), 5001)
    _drain(node, log, 5001)
    node.step(truncate, 5002)
    _drain(node, log, 5002)
    assert node.state.end_offset == 7
    assert node.state.cut_count == 1


def test_a_follower_that_claims_more_than_there_is_is_refused() -> None:
    node, log = _leader_of_three()
    push = say.PushType.APPEND
    answer = say.PushResponse("n1", "n0", 1, push, 0, say.PushStatus.SUCCESS, 2**60, 2**60)
    with pytest.raises(RemoteProtocolError, match="no honest follower"):
        node.step(answer, 5004)
    assert node.state.committed_offset == 0
    assert log.data == b"!"


def test_a_strangers_answer_counts_for_nothing() -> None:
    node, log = _leader_of_three()
    push = say.PushType.APPEND
    node.step(say.PushResponse("n9", "n0", 1, push, 0, say.PushStatus.SUCCESS, 1, 1), 5004)
    _drain(node, log, 5004)
    assert node.state.committed_offset == 0


def test_a_second_leader_of_our_term_is_refused() -> None:
    node, log = _leader_of_three()
    with pytest.raises(RemoteProtocolError, match="n1 and n0 both lead term 1"):
        node.step(say.Heartbeat("n1", "n0", 1, 0, 0, 0), 5004)
    assert node.state.role is Role.LEADER
    assert log.data


def test_a_second_leader_of_the_term_we_follow_in_is_refused() -> None:
    node, log = _node("n0", "n1", "n2")
    node.step(say.Append("n1", "n0", 2, 1, 0, 0, 1, 0, b"abc"), 5000)
    _drain(node, log, 5000)
    with pytest.raises(RemoteProtocolError, match="n2 and n1 both lead term 2"):
        node.step(say.Heartbeat("n2", "n0", 2, 0, 0, 0), 5001)
    assert node.state.leader_id == "n1"


def _follower_of_committed() -> tuple[RaftNode, _Log]:
    """n1 leads term 2; of the ten bytes of term 1 here six are committed."""
    node, log = _node(recovered=_of_term_one(10, committed_offset=6))
    node.step(say.Heartbeat("n1", "n0", 2, 100, 0, 0), 5000)
    _drain(node, log, 5000)
    return node, log


def test_a_member_that_may_not_stand_forgets_a_leader_that_is_silent() -> None:
    node, log = _node("n0", "n1", "n2")
    node.set_writable(False, 5000)
    node.step(say.Heartbeat("n1", "n0", 3, 0, 0, 5000), 5000)
    _drain(node, log, 5000)
    assert node.state.leader_id == "n1"
    node.on_time(node.state.election_deadline_ms)
    assert (node.state.role, node.state.leader_id) == (Role.FOLLOWER, "")
    now_ms = node.state.now_ms
    node.step(say.Heartbeat("n2", "n0", 3, 0, 0, now_ms), now_ms)
    assert (node.state.term, node.state.leader_id) == (3, "n2")


def test_a_leader_that_wants_committed_bytes_cut_is_refused() -> None:
    node, log = _follower_of_committed()
    with pytest.raises(RemoteProtocolError, match=r"wants our log cut at 4, .* committed up to 6"):
        node.step(say.Truncate("n1", "n0", 2, 1, 4, 1, 2), 5001)
    _drain(node, log, 5001)
    assert (node.state.end_offset, node.state.cut_count) == (10, 0)


def test_a_leader_whose_log_parts_from_what_is_committed_is_refused() -> None:
    node, log = _follower_of_committed()
    with pytest.raises(RemoteProtocolError, match="parts from ours at 4, committed 6"):
        node.step(say.Compare("n1", "n0", 2, 1, 0, 20, ((1, 0), (2, 4))), 5001)
    _drain(node, log, 5001)
    assert node.state.end_offset == 10


def test_a_leader_that_says_committed_bytes_are_others_empties_no_log() -> None:
    node, log = _follower_of_committed()
    members = (0, Configuration.of("n0", "n1", "n2"))
    with pytest.raises(RemoteProtocolError, match="byte before 6 is of term 2, but ours is"):
        node.step(say.Install("n1", "n0", 2, 1, 50, ((2, 0),), 100, members), 5001)
    _drain(node, log, 5001)
    assert (node.state.begin_offset, node.state.end_offset) == (0, 10)
    # A leader whose log holds no byte of ours any more, and agrees on what is committed.
    node.step(say.Install("n1", "n0", 2, 2, 50, ((1, 0), (2, 60)), 100, members), 5002)
    _drain(node, log, 5002)
    assert node.state.begin_offset == 50


def test_no_log_is_emptied_to_begin_where_the_leader_has_committed_nothing() -> None:
    """With an end beyond all others, such a member could win an election."""
    node, log = _follower_of_committed()
    members = (0, Configuration.of("n0", "n1", "n2"))
    install = say.Install("n1", "n0", 2, 1, 101, ((1, 0),), 200, members)
    node.step(install, 5001)
    assert _said(_drain(node, log, 5001)) == []
    assert (node.state.begin_offset, node.state.end_offset) == (0, 10)
    node.step(say.Heartbeat("n1", "n0", 2, 101, 0, 5002), 5002)
    node.step(install, 5003)
    (_, answer) = _said(_drain(node, log, 5003))
    assert isinstance(answer, say.PushResponse)
    assert (answer.status, node.state.begin_offset) == (say.PushStatus.SUCCESS, 101)


def test_what_a_leader_of_an_older_term_has_committed_empties_no_log() -> None:
    node, log = _follower_of_committed()
    members = (0, Configuration.of("n0", "n1", "n2"))
    node.step(say.Install("n2", "n0", 3, 1, 50, ((1, 0),), 100, members), 5001)
    _drain(node, log, 5001)
    assert (node.state.term, node.state.end_offset) == (3, 10)
    node.step(say.Heartbeat("n2", "n0", 3, 50, 0, 5002), 5002)
    node.step(say.Install("n2", "n0", 3, 2, 50, ((1, 0),), 100, members), 5003)
    _drain(node, log, 5003)
    assert node.state.begin_offset == 50


def test_a_leader_that_hears_of_a_newer_term_follows_at_once() -> None:
    """Fault B1: even while a majority answers."""
    node, log = _leader_of_three()
    node.step(say.StaleTerm("n2", "n0", 7), 5004)
    _drain(node, log, 5004)
    assert (node.state.role, node.state.term) == (Role.FOLLOWER, 7)
    assert not node.may_append


@pytest.mark.parametrize(("source", "target"), [("n1", "n2"), ("n0", "n0")])
def test_a_message_for_somebody_else_is_refused(source: str, target: str) -> None:
    node, _ = _node("n0", "n1", "n2")
    with pytest.raises(RemoteProtocolError, match="dLegerSelfId"):
        node.step(say.StaleTerm(source, target, 1), 5000)


def test_nothing_comes_between_ready_and_advance() -> None:
    node, _ = _node("n0", "n1", "n2")
    node.on_time(5000)
    ready = node.ready()
    assert ready is not None
    assert node.ready() is ready
    with pytest.raises(LocalProtocolError, match="a Ready is out"):
        node.on_time(5001)
    node.advance(ready)
    with pytest.raises(LocalProtocolError, match="advance must be given"):
        node.advance(ready)


def test_only_a_leader_appends() -> None:
    node, _ = _node("n0", "n1", "n2")
    assert not node.may_append
    with pytest.raises(LocalProtocolError, match="FOLLOWER must not append"):
        node.appended(10, 5000)


def test_a_clock_that_goes_back_stands_still() -> None:
    node, log = _leader_of_three()
    node.on_time(10)
    _drain(node, log, 10)
    assert node.state.now_ms == 5003


def test_a_hundred_thousand_messages_are_one_number() -> None:
    node, log = _leader_of_one()
    log.data += bytes(100_000)
    node.appended(len(log.data), 5001)
    node.flushed(len(log.data), 0, 5002)
    assert _drain(node, log, 5002)[-1].committed_offset == 100_001


def test_the_window_is_bounded_by_bytes_and_count() -> None:
    settings = RaftSettings(batch_bytes_max=10, inflight_bytes_max=35, inflight_count_max=100)
    node, log = _node("n0", "n1", "n2", settings=settings)
    node.on_time(5000)
    _drain(node, log, 5000)
    node.step(say.VoteResponse("n1", "n0", 1, True, True), 5001)
    _drain(node, log, 5001)
    node.step(say.VoteResponse("n1", "n0", 1, False, True), 5002)
    compare = next(
        message
        for message in _said(_drain(node, log, 5002))
        if isinstance(message, say.Compare) and message.target == "n1"
    )
    log.data += bytes(1000)
    node.appended(len(log.data), 5003)
    _drain(node, log, 5003)
    push, success = say.PushType.COMPARE, say.PushStatus.SUCCESS
    node.step(say.PushResponse("n1", "n0", 1, push, compare.sequence, success, 0, 0), 5004)
    sent = [one for one in _said(_drain(node, log, 5004)) if isinstance(one, say.Append)]
    assert [one.prev_offset for one in sent] == [0, 10, 20, 30]
    status = node.status().followers[0]
    assert (status.member_id, status.inflight_bytes, status.gap_bytes) == ("n1", 40, 1001)


@pytest.mark.parametrize(("committed_offset", "role"), [(0, "PRE_CANDIDATE"), (9, "FOLLOWER")])
def test_a_removed_member_stands_until_its_removal_is_committed(
    committed_offset: int, role: str
) -> None:
    without = Configuration.of("n1", "n2")
    recovered = Recovered(
        hard_state=HardState(term=1, committed_offset=committed_offset),
        terms=TermTable().begin(1, 0),
        configurations=ConfigurationTable(((0, Configuration.of("n0", "n1", "n2")), (9, without))),
        end_offset=9,
    )
    node, log = _node(recovered=recovered)
    node.on_time(5000)
    asked = [message.target for message in _said(_drain(node, log, 5000))]
    assert node.state.role.value == role
    assert asked == (["n1", "n2"] if role == "PRE_CANDIDATE" else [])


def test_changes_and_transfers_are_refused_in_words() -> None:
    node, log = _node("n0", "n1", "n2")
    asked = node.change_membership(ChangeKind.ADD_LEARNER, "n3", 5000)
    assert asked == "n0 is not the leader; there is none at the moment"
    leader, log = _leader_of_three()
    early = leader.change_membership(ChangeKind.ADD_LEARNER, "n3", 5004)
    assert early.startswith("this leader has not committed anything in its term yet")
    assert leader.transfer_leadership("n1", 5004) == (
        "a change is not committed yet; ask again in a moment"
    )
    assert log.data


def test_no_member_changes_while_the_leadership_is_handed_over() -> None:
    leader, log = _leader_of_three()
    end, push = len(log.data), say.PushType.APPEND
    leader.step(say.PushResponse("n1", "n0", 1, push, 0, say.PushStatus.SUCCESS, end, end), 5004)
    _drain(leader, log, 5004)
    assert leader.transfer_leadership("n1", 5005) == ""
    refused = leader.change_membership(ChangeKind.ADD_LEARNER, "n3", 5006)
    assert refused == "the leadership is being handed to n1"


@pytest.mark.parametrize(
    "wrong",
    [
        {"heartbeat_interval_ms": 600},
        {"election_timeout_max_ms": 1000},
        {"inflight_count_max": 0},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        RaftSettings(**wrong)  # type: ignore[arg-type]

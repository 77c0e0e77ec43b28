from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import pytest
from support.handlers.consuming import request
from support.handlers.raft_tables import CONFIG, Member, fold_of
from support.handlers.sending import WALL_MS, FakeChannel, at
from support.stores.small import dispatch_all

from trioha.broker.metadata_ops import OffsetsSet, QueueEnds, Snapshot, TopicPut
from trioha.broker.put_message import UNCONFIRMED
from trioha.broker.raft.metadata import BODIES_MAX, RaftMetadata
from trioha.broker.raft.records import CHANGES, SNAPSHOT, messages_of
from trioha.config import BrokerRole
from trioha.errors import CommandError, DiskFull, LocalProtocolError, StoreError
from trioha.wire.bodies import SubscriptionGroupConfig, TopicConfig
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.names import METADATA_TOPIC
from trioha.wire.remoting_command import RemotingCommand


class Pair:
    """Two members; `leader` leads until the test says otherwise."""

    def __init__(self, root: Path) -> None:
        self.leader = Member(root / "n0")
        self.other = Member(root / "n1")
        self.leader.put_noop(1)
        self.leader.commit(self.leader.end)
        self.leader.lead()
        self.level()

    def level(self) -> None:
        """Copy the leader's log to the other member, and commit it on both."""
        self.leader.batch()
        self.other.copy(self.leader)
        self.leader.commit(self.leader.end)
        self.other.commit(self.leader.end)

    def fail_over(self) -> None:
        """Cut the leader off from here on, and make the other member lead."""
        self.other.commit(self.other.put_noop(2))
        self.other.lead()

    def close(self) -> None:
        self.leader.close()
        self.other.close()


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    pair = Pair(tmp_path)
    try:
        yield pair
    finally:
        pair.close()


class Former(Member):
    """A slave's store that became a group's: its tables were loaded from its own files."""

    def make_tables(self) -> RaftMetadata:
        self.core.topics.put(TopicConfig("Old", 4, 4), WALL_MS)
        self.core.offsets.commit("g", "Old", 0, 9)
        return super().make_tables()


def commit_request(offset: int = 5, group: str = "g") -> RemotingCommand:
    return request(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        consumerGroup=group,
        topic="T",
        queueId="0",
        commitOffset=str(offset),
    )


def new_topic(member: Member, name: str = "T") -> None:
    member.core.topics.put(TopicConfig(name, 4, 4), WALL_MS)


def ask(member: Member, command: RemotingCommand) -> tuple[RemotingCommand | None, FakeChannel]:
    """Return the immediate answer, and the channel for later ones."""
    channel = FakeChannel()
    response = member.core.handlers[command.code](channel, command, at())
    member.batch()
    return response, channel


# The log and the tables.


def test_a_leadership_begins_with_a_snapshot(pair: Pair) -> None:
    ((phy_offset, kind, ops),) = pair.leader.bodies()
    assert kind == SNAPSHOT
    assert [type(op) for op in ops] == [Snapshot, QueueEnds]
    assert pair.leader.raft.snapshot_offset == phy_offset == pair.other.raft.snapshot_offset


def test_changes_of_one_batch_are_one_record_and_reach_the_follower_with_the_commit(
    pair: Pair,
) -> None:
    leader, other = pair.leader, pair.other
    new_topic(leader)
    for offset in range(1, 500):
        leader.core.offsets.commit("g", "T", offset % 2, offset)
    leader.batch()
    assert [kind for _, kind, _ in leader.bodies()] == [SNAPSHOT, CHANGES, CHANGES]
    assert [type(op) for _, _, ops in leader.bodies()[1:] for op in ops] == [TopicPut, OffsetsSet]
    other.copy(leader)
    assert other.core.topics.get("T") is None, "not committed yet"
    pair.level()
    assert other.tables() == leader.tables() == fold_of(leader)


def test_a_topic_is_in_the_log_before_its_first_message(pair: Pair) -> None:
    new_topic(pair.leader)
    outcome = pair.leader.put()
    assert outcome.result is not None
    assert pair.leader.bodies()[-1][0] < outcome.result.phy_offset


def test_a_restart_reads_everything_out_of_the_log_alone(pair: Pair) -> None:
    new_topic(pair.leader)
    pair.leader.core.groups.put(SubscriptionGroupConfig("g", retry_max_times=3), WALL_MS)
    pair.leader.core.offsets.commit("g", "T", 1, 77)
    pair.level()
    expected = pair.leader.tables()
    pair.other.restart(without_queues=True)
    assert pair.other.core.topics.get("T") is None, "what is committed is not known yet"
    pair.other.commit(pair.other.end)
    assert pair.other.tables() == expected
    assert pair.other.raft.is_current


def test_tables_of_a_former_slave_are_where_a_group_begins(tmp_path: Path) -> None:
    member = Former(tmp_path)
    try:
        member.commit(member.put_noop(1))
        member.lead()
        assert member.core.topics.get("Old") is not None
        assert member.core.offsets.query("g", "Old", 0) == 9
        assert not member.core.offsets.commits_to_tell(), "there is no master to tell"
        new_topic(member)
        member.step_down()
        assert member.core.topics.get("T") is None
        assert member.core.topics.get("Old") is not None, "what there was before the log"
        assert member.core.offsets.query("g", "Old", 0) == 9
    finally:
        member.close()


def test_who_steps_down_forgets_what_is_not_committed(pair: Pair) -> None:
    leader = pair.leader
    new_topic(leader)
    pair.level()
    committed = leader.tables()
    leader.core.offsets.commit("g", "T", 0, 50)
    leader.batch()
    new_topic(leader, "Uncommitted")
    leader.core.groups.put(SubscriptionGroupConfig("Uncommitted"), WALL_MS)
    leader.core.offsets.commit("g", "T", 1, 51)  # not even in the log
    leader.step_down()
    assert leader.tables() == committed
    assert leader.raft.status()["uncommitted"] == 0


def test_a_new_leader_has_what_was_committed_and_the_old_one_learns_of_it(pair: Pair) -> None:
    leader, other = pair.leader, pair.other
    new_topic(leader)
    pair.level()
    common = leader.end
    new_topic(leader, "Lost")
    pair.fail_over()
    new_topic(other, "Kept")
    other.batch()
    leader.step_down()
    leader.cut(common)
    leader.copy(other)
    other.commit(other.end)
    leader.commit(other.end)
    assert leader.tables() == other.tables() == fold_of(other)
    assert leader.core.topics.get("Lost") is None
    assert leader.core.topics.get("Kept") is not None


def test_a_log_that_is_cut_under_a_leader_takes_its_changes_along(pair: Pair) -> None:
    leader = pair.leader
    common, committed = leader.end, leader.tables()
    new_topic(leader, "Lost")
    leader.cut(common)
    assert leader.tables() == committed


def test_nobody_leads_whose_tables_lack_something(pair: Pair) -> None:
    new_topic(pair.leader)
    pair.leader.batch()
    pair.other.copy(pair.leader)
    assert not pair.other.raft.is_current
    with pytest.raises(LocalProtocolError, match="committed up to"):
        pair.other.lead()


def test_a_topic_that_only_the_configuration_asks_for_comes_with_the_leader(
    tmp_path: Path,
) -> None:
    pair = Pair(tmp_path)
    try:
        pair.other.close()
        pair.other.config = attrs.evolve(CONFIG, trace_topic_enable=True)
        pair.other.open()
        pair.other.commit(pair.leader.end)
        assert pair.other.core.topics.get("RMQ_SYS_TRACE_TOPIC") is None, "the log is the truth"
        pair.fail_over()
        assert pair.other.core.topics.get("RMQ_SYS_TRACE_TOPIC") is not None
        assert pair.other.tables() == fold_of(pair.other)
    finally:
        pair.close()


# Snapshots.


def test_a_large_snapshot_is_several_records(tmp_path: Path) -> None:
    config = attrs.evolve(CONFIG, mapped_file_size_commit_log=16 << 20)
    member, copy = Member(tmp_path / "n0", config), Member(tmp_path / "n1", config)
    try:
        table = {
            f"{'topic' * 10}-{n}@{'group' * 10}": {q: n for q in range(4)} for n in range(50_000)
        }
        member.commit(member.put_noop(1))
        member.core.offsets.follow(table)
        member.lead()
        low, high = member.store.raft_queues().bounds(METADATA_TOPIC, 0)
        assert high - low >= 6, "over 4 MiB"
        expected = member.tables()
        member.commit(member.end)
        copy.copy(member)
        copy.commit(member.end - 1)
        assert not copy.core.offsets.table, "the last part is not committed"
        copy.commit(member.end)
        assert copy.tables() == expected
        assert copy.raft.snapshot_offset == member.raft.snapshot_offset >= 0
        copy.restart()
        copy.commit(member.end)
        assert copy.tables() == expected
    finally:
        member.close()
        copy.close()


def test_a_snapshot_that_a_leader_died_over_counts_for_nothing(tmp_path: Path) -> None:
    config = attrs.evolve(CONFIG, max_message_size=256)
    member, copy = Member(tmp_path / "n0", config), Member(tmp_path / "n1", config)
    try:
        member.commit(member.put_noop(1))
        member.lead()
        first, second = member.raft.snapshot_offset, member.end
        member.commit(second)
        first = member.raft.snapshot_offset
        new_topic(member)
        member.batch()
        before = member.end
        member.raft.step_down()
        member.commit(before)
        member.lead()
        # The second snapshot is cut in its middle, as if no more of it had been copied.
        queues = member.store.raft_queues()
        middle = queues.entry(METADATA_TOPIC, 0, queues.index_at(METADATA_TOPIC, 0, before) + 2)
        assert middle is not None
        copy.copy(member, middle[0])
        noop = copy.put_noop(2)
        copy.commit(noop)
        assert copy.raft.snapshot_offset == first
        assert copy.core.topics.get("T") is not None
        copy.lead()
        copy.commit(copy.end)
        assert copy.raft.snapshot_offset >= noop
        copy.restart()
        copy.commit(copy.end)
        assert copy.core.topics.get("T") is not None
        assert copy.tables() == fold_of(copy)
    finally:
        member.close()
        copy.close()


def test_a_snapshot_follows_when_the_log_has_begun_a_segment(pair: Pair) -> None:
    leader = pair.leader
    new_topic(leader)
    first = leader.raft.snapshot_offset
    segment = leader.end // CONFIG.mapped_file_size_commit_log
    while leader.end // CONFIG.mapped_file_size_commit_log == segment:
        assert [kind for _, kind, _ in leader.bodies()].count(SNAPSHOT) == 1
        leader.put(body=bytes(1000))
        leader.batch()
    pair.level()
    assert [kind for _, kind, _ in leader.bodies()].count(SNAPSHOT) == 2
    assert leader.raft.snapshot_offset > first
    assert leader.raft.retention_floor() == leader.raft.snapshot_offset
    assert pair.other.raft.retention_floor() == leader.raft.snapshot_offset


def test_a_snapshot_follows_after_so_many_bodies(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trioha.broker.raft.metadata.BODIES_MAX", 10)
    assert BODIES_MAX > 10
    for count in range(25):
        pair.leader.core.offsets.commit("g", "TBW102", 0, count)
        pair.leader.batch()
    kinds = [kind for _, kind, _ in pair.leader.bodies()]
    assert kinds.count(SNAPSHOT) == 3
    pair.level()
    assert pair.other.tables() == pair.leader.tables()


def test_nothing_may_be_deleted_before_a_snapshot_is_committed(tmp_path: Path) -> None:
    member = Member(tmp_path)
    try:
        member.commit(member.put_noop(1))
        member.lead()
        assert member.raft.retention_floor() == 0
        member.commit(member.end)
        assert 0 < member.raft.retention_floor() < member.end
    finally:
        member.close()


def test_a_log_in_another_language_ends_the_node(pair: Pair) -> None:
    leader = pair.leader
    message = leader.put("T").result
    assert message is not None
    leader.step_down()
    for put in messages_of(CHANGES, b"\x92\x63\x01", 1024, WALL_MS):
        leader.store.put_message(put, WALL_MS)
    with pytest.raises(StoreError, match=r"the metadata at offset \d+ of the log cannot be read"):
        leader.commit(leader.end)


# Answers.


def test_an_offset_commit_is_answered_when_it_is_committed_and_outlives_its_leader(
    pair: Pair,
) -> None:
    leader, other = pair.leader, pair.other
    new_topic(leader)
    pair.level()
    response, channel = ask(leader, commit_request(41))
    assert response is None
    assert channel.sent == []
    other.copy(leader)
    leader.commit(leader.end)
    assert [answer.code for answer in channel.sent] == [ResponseCode.SUCCESS]
    # The leader dies before it has told the follower of the commit.
    pair.fail_over()
    assert other.core.offsets.query("g", "T", 0) == 41


def test_a_commit_that_no_majority_has_seen_is_of_unknown_outcome(pair: Pair) -> None:
    leader = pair.leader
    new_topic(leader)
    pair.level()
    _, channel = ask(leader, commit_request())
    leader.step_down()
    (answer,) = channel.sent
    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, UNCONFIRMED)
    assert UNCONFIRMED.startswith("outcome unknown: ")


def test_followers_take_no_commits_and_keep_nothing_that_consumers_bring(pair: Pair) -> None:
    new_topic(pair.leader)
    pair.level()
    other, before = pair.other, pair.other.tables()
    with pytest.raises(CommandError, match="follower") as refused:
        ask(other, commit_request())
    assert refused.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert other.core.groups.find("new", WALL_MS) is not None, "for the answer"
    assert other.core.topics.create_internal("%RETRY%new", 1, 6, WALL_MS) is not None
    with pytest.raises(CommandError, match="slave"):
        ask(other, request(RequestCode.DELETE_TOPIC_IN_BROKER, topic="T"))
    other.batch()
    assert other.tables() == before
    assert other.end == pair.leader.end


def test_changes_during_a_hand_over_are_held_until_it_is_given_up(pair: Pair) -> None:
    leader = pair.leader
    new_topic(leader)
    pair.level()
    end = leader.end
    leader.core.pause()
    leader.raft.pause()
    leader.may_append = False
    _, channel = ask(leader, commit_request(7))
    new_topic(leader, "During")
    assert leader.end == end
    leader.may_append = True
    leader.raft.resume()
    leader.core.become(BrokerRole.SYNC_MASTER, 0)
    assert leader.end > end
    assert channel.sent == []
    pair.level()
    assert [answer.code for answer in channel.sent] == [ResponseCode.SUCCESS]
    assert pair.other.tables() == leader.tables() == fold_of(leader)


def test_changes_during_a_hand_over_that_succeeds_never_were(pair: Pair) -> None:
    leader = pair.leader
    new_topic(leader)
    pair.level()
    before, end = leader.tables(), leader.end
    leader.core.pause()
    leader.raft.pause()
    _, channel = ask(leader, commit_request(7))
    leader.step_down()
    assert leader.tables() == before
    assert leader.end == end
    assert [answer.code for answer in channel.sent] == [ResponseCode.SYSTEM_ERROR]


def test_tables_that_no_follower_would_take_make_the_leader_resign(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = pair.leader
    monkeypatch.setattr("trioha.broker.raft.metadata.BODY_BYTES_MAX", 1)
    end = leader.end
    new_topic(leader)
    (failure,) = leader.failures
    assert failure.startswith("no room for metadata: the tables have ")
    assert leader.end == end, "nothing of them is in the log"


def test_a_change_that_finds_no_room_makes_the_leader_resign(pair: Pair) -> None:
    leader, before = pair.leader, pair.leader.tables()
    leader.store._gate.shut("the disk is full")
    new_topic(leader)
    assert leader.failures == ["no room for metadata: the disk is full"]
    new_topic(leader, "More")
    assert len(leader.failures) == 1
    leader.step_down()
    assert leader.tables() == before


# Delay.


def test_progress_of_deliveries_is_behind_them_in_the_log(pair: Pair) -> None:
    leader, other = pair.leader, pair.other
    new_topic(leader)
    leader.put_delayed()
    leader.core.deliveries.run_due(at(100_000))
    assert not leader.queue("T"), "what is not committed is not delivered"
    pair.level()
    leader.core.deliveries.run_due(at(100_000))
    leader.batch()
    assert leader.queue("T")[0] < leader.bodies()[-1][0]
    pair.level()
    assert other.core.schedule.offsets() == {1: 1}
    # A member with the progress has the delivery: the next leader does not repeat it.
    pair.fail_over()
    other.core.deliveries.run_due(at(100_000))
    assert len(other.queue("T")) == 1


def test_a_delivery_that_was_cut_is_made_again(pair: Pair) -> None:
    leader, other = pair.leader, pair.other
    new_topic(leader)
    leader.put_delayed()
    pair.level()
    leader.core.deliveries.run_due(at(100_000))
    leader.batch()
    pair.fail_over()
    assert other.core.schedule.offsets() == {}
    other.core.deliveries.run_due(at(100_000))
    assert len(other.queue("T")) == 1
    leader.step_down()
    assert leader.core.schedule.offsets() == {}


# Deleted topics.


def filled(pair: Pair, count: int = 3) -> None:
    new_topic(pair.leader)
    for _ in range(count):
        pair.leader.put()
    pair.level()


def test_queues_of_a_deleted_topic_go_when_that_is_committed(pair: Pair) -> None:
    filled(pair)
    leader, other = pair.leader, pair.other
    leader.delete_topic("T")
    leader.batch()
    assert leader.core.topics.get("T") is None
    assert len(leader.queue("T")) == 3, "it may be undone yet"
    pair.level()
    for member in (leader, other):
        assert member.queue("T") == {}
        assert not (member.root / "consumequeue" / "T").exists()
    new_topic(leader)
    leader.put()
    pair.level()
    assert list(leader.queue("T")) == list(other.queue("T")) == [0]


def test_a_deletion_that_is_cut_leaves_everything_as_it_was(pair: Pair) -> None:
    filled(pair)
    leader, other = pair.leader, pair.other
    leader.core.offsets.commit("g", "T", 0, 2)
    pair.level()
    common, tables, queue = leader.end, leader.tables(), leader.queue("T")
    leader.delete_topic("T")
    new_topic(leader)
    leader.put()
    leader.batch()
    leader.step_down()
    leader.cut(common)
    assert leader.tables() == tables
    assert leader.queue("T") == queue
    pair.fail_over()
    other.put()
    leader.copy(other)
    leader.commit(other.end)
    other.commit(other.end)
    assert list(leader.queue("T")) == list(other.queue("T")) == [0, 1, 2, 3]


def test_a_topic_made_anew_before_its_deletion_is_committed_goes_on_counting(pair: Pair) -> None:
    filled(pair)
    leader, other = pair.leader, pair.other
    leader.delete_topic("T")
    new_topic(leader)
    leader.put()
    pair.level()
    assert list(leader.queue("T")) == list(other.queue("T")) == [3]
    leader.put()
    pair.level()
    assert leader.queue("T") == other.queue("T")
    assert list(leader.queue("T")) == [3, 4]
    other.restart()
    other.commit(leader.end)
    assert other.queue("T") == leader.queue("T"), "what was forgotten stays so"


def test_a_queue_begun_anew_is_not_taken_for_the_deleted_one(pair: Pair) -> None:
    """The follower's queues run ahead of the commit, which tells it of the deletion."""
    filled(pair)
    leader, other = pair.leader, pair.other
    leader.delete_topic("T")
    leader.batch()
    leader.commit(leader.end)
    new_topic(leader)
    leader.put()
    leader.put()
    leader.batch()
    other.copy(leader)
    assert list(other.queue("T")) == [0, 1]
    other.commit(leader.end)
    assert list(other.queue("T")) == [0, 1]


def test_a_snapshot_tells_of_queues_that_are_gone(pair: Pair) -> None:
    """A member that starts reads from the newest snapshot on, and never meets the deletion."""
    filled(pair)
    leader, other = pair.leader, pair.other
    leader.delete_topic("T")
    pair.level()
    leader.step_down()
    leader.lead()
    pair.level()
    other.restart(without_queues=True)
    assert len(other.queue("T")) == 3, "the log still holds its messages"
    other.commit(leader.end)
    assert other.queue("T") == {}


def test_no_offset_is_given_again_when_a_queues_records_have_expired(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    leader, copy = pair.leader, Member(tmp_path / "n2")
    try:
        filled(pair, 5)
        leader.core.topics.put(TopicConfig("Busy", 1, 1), WALL_MS)
        while leader.raft.snapshot_offset < 2 * CONFIG.mapped_file_size_commit_log:
            leader.put("Busy", body=bytes(2000))
            pair.level()
        # A member whose disk was lost gets what the leader's log still holds.
        copy.install(leader)
        assert copy.queue("T") == {}
        copy.commit(leader.end)
        assert copy.tables() == leader.tables()
        copy.commit(copy.put_noop(2))
        copy.lead()
        outcome = copy.put("T")
        assert outcome.result is not None
        assert outcome.result.queue_offset == 5
    finally:
        copy.close()
        pair.close()


def test_a_deleted_topic_is_not_brought_back_by_a_snapshot_between(pair: Pair) -> None:
    """A snapshot may lie behind the deletion and before its commit."""
    filled(pair)
    leader, other = pair.leader, pair.other
    leader.delete_topic("T")
    leader.raft._write_snapshot()
    pair.level()
    assert leader.queue("T") == other.queue("T") == {}
    new_topic(leader)
    leader.put()
    pair.level()
    dispatch_all(other.store)
    assert list(leader.queue("T")) == list(other.queue("T")) == [0]


def test_messages_between_a_deletion_and_a_snapshot_are_kept_by_whoever_begins_with_that(
    pair: Pair,
) -> None:
    filled(pair)
    leader, other = pair.leader, pair.other
    leader.delete_topic("T")
    new_topic(leader)
    leader.put()
    leader.raft._write_snapshot()
    pair.level()
    leader.put()
    pair.level()
    assert list(leader.queue("T")) == [3, 4]
    for without_queues in (False, True):
        other.restart(without_queues=without_queues)
        other.commit(leader.end)
        assert other.queue("T") == leader.queue("T")
    # Also when the next leader's snapshot is the one that tells of it.
    pair.fail_over()
    other.commit(other.end)
    other.restart(without_queues=True)
    other.commit(other.end)
    assert other.queue("T") == leader.queue("T")


def test_status_says_where_the_tables_stand(pair: Pair) -> None:
    new_topic(pair.leader)
    status = pair.leader.raft.status()
    assert status["uncommitted"] == 1
    assert status["snapshot_offset"] == pair.leader.raft.snapshot_offset
    assert status["applied_offset"] == pair.leader.end
    pair.level()
    status = pair.leader.raft.status()
    assert status["uncommitted"] == 0
    assert status["committed_position"] == status["position"]


def test_no_room_for_a_snapshots_queues_is_no_end_and_no_leader(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    leader, other = pair.leader, pair.other
    try:
        filled(pair)
        leader.store.raft_queues().settle({"Expired": {0: 7}, "T": {0: 3}}, {})
        leader.step_down()
        leader.lead()
        make, settle = other.raft._queues.settle, []

        def full(ends: Mapping[str, Mapping[int, int]], gone: Mapping[str, int]) -> None:
            settle.append(1)
            if len(settle) < 2:
                raise DiskFull("no room")
            make(ends, gone)

        other.raft._queues.settle = full  # type: ignore[method-assign]
        pair.level()
        assert other.raft.snapshot_offset < leader.raft.snapshot_offset
        new_topic(leader, "More")
        pair.level()
        assert other.raft.is_current
        assert other.tables() == leader.tables()
        assert other.store.raft_queues().ends({})["Expired"] == {0: 7}
    finally:
        pair.close()


def test_levels_that_the_last_records_moved_are_looked_at(pair: Pair) -> None:
    """A member may be elected, and told to serve, before its tables are up to date."""
    leader, other = pair.leader, pair.other
    new_topic(leader)
    leader.put_delayed()
    pair.level()
    leader.core.deliveries.run_due(at(1_000))
    leader.put_delayed()
    leader.batch()
    other.copy(leader)
    end = other.put_noop(2)
    other.visibility.set_limit(end)
    other.raft._commit = end  # told, and not applied yet
    other.core.become(BrokerRole.SYNC_MASTER, 0)
    other.raft.lead()
    assert other.core.schedule.offsets() == {1: 1}
    assert other.core.schedule.next_deadline(WALL_MS) is not None
    other.core.deliveries.run_due(at(100_000))
    assert len(other.queue("T")) == 2

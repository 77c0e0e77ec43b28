"""Three members, any interleaving of changes, copies, commits, elections, cuts and crashes.

What Raft does is done here by hand and by its rules: a leader's log ends in a NOOP of its term
before it serves, nothing committed is cut, only a log that is as new as a majority's may lead.
Deposed leaders go on until they are told. In the end each member's tables must be what the
committed changes make of new ones, snapshots left out, and all members' queues the same.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import attrs
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from support.handlers.raft_tables import CONFIG, Member, fold_of
from support.handlers.sending import WALL_MS, at

from trioha.wire.bodies import SubscriptionGroupConfig, TopicConfig
from trioha.wire.names import RAFT_TOPICS

SMALL = attrs.evolve(CONFIG, mapped_file_size_commit_log=8192)
MEMBERS = st.integers(0, 2)
TOPICS = st.sampled_from(["A", "T"])
GROUPS = st.sampled_from(["g", "h"])


class Group(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.folder = tempfile.TemporaryDirectory()
        folder = Path(self.folder.name)
        self.members = [Member(folder / f"n{index}", SMALL) for index in range(3)]
        self.terms: list[list[tuple[int, int]]] = [[], [], []]  # of each log: (term, start)
        self.serving: list[bool] = [False] * 3  # deposed leaders included
        self.newest = 0
        self.leader = -1  # of the newest term
        self.noop_end = 0
        self.commit = 0
        self.stamp = WALL_MS
        self.folds: dict[int, dict[str, object]] = {}  # what is committed never changes
        self.change_leader(0)

    def teardown(self) -> None:
        if hasattr(self, "folder"):
            try:
                self.settle()
            finally:
                for member in self.members:
                    member.close()
                self.folder.cleanup()

    # Clients, at any member that believes that it leads.

    def actor(self, who: int) -> Member | None:
        """Return that member if it serves, deposed or not; else the leader, if it serves."""
        for one in (who, self.leader):
            if one >= 0 and self.serving[one]:
                return self.members[one]
        return None

    @rule(who=MEMBERS, name=TOPICS, queues=st.integers(1, 3))
    def put_topic(self, who: int, name: str, queues: int) -> None:
        if member := self.actor(who):
            self.stamp += 1
            member.core.topics.put(TopicConfig(name, queues, queues), self.stamp)

    @rule(who=MEMBERS, name=TOPICS)
    def delete_topic(self, who: int, name: str) -> None:
        if member := self.actor(who):
            member.delete_topic(name)

    @rule(who=MEMBERS, name=TOPICS, count=st.integers(0, 2))
    def make_topic_anew(self, who: int, name: str, count: int) -> None:
        self.delete_topic(who, name)
        self.put_topic(who, name, 2)
        self.put(who, name, count, 1)

    @rule(who=MEMBERS, name=GROUPS, retries=st.integers(0, 5))
    def put_group(self, who: int, name: str, retries: int) -> None:
        if member := self.actor(who):
            group = SubscriptionGroupConfig(name, retry_max_times=retries)
            member.core.groups.put(group, self.stamp)

    @rule(who=MEMBERS, name=GROUPS)
    def delete_group(self, who: int, name: str) -> None:
        if member := self.actor(who):
            member.core.groups.delete(name, self.stamp)
            member.core.offsets.delete_group(name)

    @rule(who=MEMBERS, group=GROUPS, topic=TOPICS, offset=st.integers(0, 99))
    def commit_offset(self, who: int, group: str, topic: str, offset: int) -> None:
        if member := self.actor(who):
            member.core.offsets.commit(group, topic, offset % 2, offset)

    @rule(who=MEMBERS, topic=TOPICS, count=st.integers(1, 5), size=st.sampled_from([1, 1500]))
    def put(self, who: int, topic: str, count: int, size: int) -> None:
        member = self.actor(who)
        if member is not None and member.core.topics.get(topic) is not None:
            for _ in range(count):
                member.put(topic, body=bytes(size))

    @rule(who=MEMBERS)
    def put_delayed(self, who: int) -> None:
        if member := self.actor(who):
            member.put_delayed()

    @rule(who=MEMBERS)
    def deliver(self, who: int) -> None:
        if member := self.actor(who):
            member.core.deliveries.run_due(at(1_000_000))

    @rule(who=MEMBERS)
    def end_of_batch(self, who: int) -> None:
        if member := self.actor(who):
            member.batch()

    @rule(who=MEMBERS)
    def snapshot(self, who: int) -> None:
        if member := self.actor(who):
            member.core.metadata.flush()
            member.raft._write_snapshot()

    # Replication and elections.

    @rule(who=MEMBERS, part=st.sampled_from([0.3, 1.0]))
    def replicate(self, who: int, part: float) -> None:
        """Copy the newest leader's log to another member, which stops leading if it did."""
        if who == self.leader or self.leader < 0:
            return
        source, target = self.members[self.leader], self.members[who]
        self.depose(who)
        common = self.common(who)
        if common < source.store.min_phy_offset:
            assert who != 2, "it had all that was committed when the others were installed"
            self.install(who)
            return
        if common < target.end:
            assert common >= target.raft._commit, (common, target.raft._commit)
            target.cut(common)
        target.copy(source, common + int((source.end - common) * part))
        dispatched = target.store.dispatched_offset
        if dispatched < target.end:
            target.cut(dispatched)
        self.terms[who] = [(t, s) for t, s in self.terms[self.leader] if s < target.end]

    @rule()
    def advance(self) -> None:
        """Commit at the newest leader what a majority has, if that is of its own term."""
        if self.leader < 0:
            return
        ends = sorted(self.common(who) for who in range(3))
        if ends[1] >= self.noop_end and ends[1] > self.commit:
            self.commit = ends[1]
            self.members[self.leader].commit(self.commit)

    @rule(who=MEMBERS)
    def tell(self, who: int) -> None:
        """Tell a follower of the commit, as far as its log is the leader's."""
        if self.leader >= 0 and who != self.leader and not self.serving[who]:
            self.members[who].commit(min(self.commit, self.common(who)))

    @rule(who=MEMBERS)
    def elect(self, who: int) -> None:
        others = [index for index in range(3) if index != who]
        if not any(self.newness(who) >= self.newness(other) for other in others):
            return
        self.depose(who)
        member = self.members[who]
        self.newest += 1
        self.leader = who
        self.terms[who].append((self.newest, member.end))
        self.noop_end = member.put_noop(self.newest)

    @rule(who=MEMBERS)
    def change_leader(self, who: int) -> None:
        self.elect(who)
        self.level()
        self.let_serve()

    @rule()
    def level(self) -> None:
        """Copy the leader's whole log to all members; tell them of the commit."""
        for who in range(3):
            self.replicate(who, 1.0)
        self.advance()
        for who in range(3):
            self.tell(who)

    @rule()
    def let_serve(self) -> None:
        self.advance()
        if self.leader >= 0 and self.commit >= self.noop_end and not self.serving[self.leader]:
            self.members[self.leader].lead()
            self.serving[self.leader] = True

    def depose(self, who: int) -> None:
        self.members[who].step_down()
        self.serving[who] = False
        if who == self.leader:
            self.leader = -1

    @rule(who=st.integers(0, 1))
    def install(self, who: int) -> None:
        """The leader no longer has what this member lacks; member 2 keeps all for the model."""
        if self.leader >= 0 and who != self.leader:
            self.replicate(2, 1.0)
            self.depose(who)
            self.members[who].install(self.members[self.leader])
            self.terms[who] = list(self.terms[self.leader])

    @rule(who=MEMBERS, without_queues=st.booleans())
    def crash(self, who: int, without_queues: bool) -> None:
        if who == self.leader and self.newest % 2:
            return  # crashes of followers are the rule
        self.serving[who] = False
        if who == self.leader:
            self.leader = -1
        self.members[who].restart(without_queues=without_queues)

    def newness(self, who: int) -> tuple[int, int]:
        terms = self.terms[who]
        return (terms[-1][0] if terms else 0), self.members[who].end

    def common(self, who: int) -> int:
        """Return the offset up to which a member's log is the leader's: by terms, like COMPARE."""
        assert self.leader >= 0
        ours, theirs = self.terms[who], self.terms[self.leader]
        same = 0
        while same < min(len(ours), len(theirs)) and ours[same] == theirs[same]:
            same += 1
        ends = [self.members[who].end, self.members[self.leader].end]
        for terms in (ours, theirs):
            if same < len(terms):
                ends.append(terms[same][1])
        return min(ends)

    # Invariants.

    @invariant()
    def tables_of_followers_are_what_is_committed_to_them(self) -> None:
        if not hasattr(self, "members"):
            return
        for who, member in enumerate(self.members):
            commit = member.raft._commit
            if not self.serving[who] and commit:
                if commit not in self.folds and self.members[2].raft._commit >= commit:
                    self.folds[commit] = fold_of(self.members[2], commit)
                if commit in self.folds and self.has_snapshot(member):
                    assert member.tables() == self.folds[commit]

    def has_snapshot(self, member: Member) -> bool:
        """Return False for a copy that was not told of a snapshot yet: it keeps what it had."""
        return member.store.min_phy_offset == 0 or member.raft.snapshot_offset >= 0

    def settle(self) -> None:
        """Copy the leader's log to all members, tell them of the commit, and compare them."""
        if self.leader < 0:
            self.elect(max(range(3), key=self.newness))
        for _ in range(2):
            for who in range(3):
                self.replicate(who, 1.0)
            self.let_serve()
            self.members[self.leader].batch()
        for who in range(3):
            self.replicate(who, 1.0)
        self.advance()
        leader = self.members[self.leader]
        assert self.commit == leader.end
        expected = fold_of(self.members[2])
        for who, member in enumerate(self.members):
            self.tell(who)
            assert member.tables() == expected
            assert member.raft.is_current
            assert member.store.raft_queues().ends({}) == leader.store.raft_queues().ends({})
            begin = max(member.store.min_phy_offset, leader.store.min_phy_offset)
            for topic, queue_id in leader.store.queues():
                if topic not in RAFT_TOPICS:
                    ours, theirs = (
                        {
                            index: at
                            for index, at in one.queue(topic, queue_id).items()
                            if at >= begin
                        }
                        for one in (member, leader)
                    )
                    assert ours == theirs, (topic, queue_id)


TestGroup = Group.TestCase
TestGroup.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

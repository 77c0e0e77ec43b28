"""Two logs of a group through leaders, copies, cuts, emptyings, kills and power cuts.

The core's part is played by tables of terms and members that only this test knows. After every
start a log must say of itself what they say.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import attrs
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from support.stores.raft import ADDRESSES, FOUNDERS, LONG_AFTER_MS, member_config, open_member
from support.stores.small import SEGMENT_BYTES, crash, dispatch_all, message, records_of

from trioha.broker.raft.log import RaftLog
from trioha.dledger.membership import Configuration, ConfigurationTable
from trioha.dledger.ready import Control, LogReset, LogTruncate, LogWrite
from trioha.dledger.term_table import TermTable
from trioha.store.interface import PutStatus
from trioha.wire.names import RAFT_TOPICS
from trioha.wire.record import record_size

FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
MEMBERS = st.integers(0, 1)


@attrs.define(eq=False)
class Member:
    """A log, and what the core of its member would know."""

    log: RaftLog
    terms: TermTable
    configurations: ConfigurationTable
    ends: list[int]
    """Offsets at which records and blanks end."""

    @property
    def end(self) -> int:
        return self.log.store.max_phy_offset

    @property
    def begin(self) -> int:
        return self.log.store.min_phy_offset


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="trioha-", dir=FAST))
        self.members = [self._new(number) for number in range(2)]
        self.term = 0
        self.leader: int | None = None
        self.committed = 0
        self.committed_in = 0
        """The term of the byte before."""
        self.serial = 0
        self.queue_ends: dict[tuple[str, int], int] = {}

    def _new(self, number: int) -> Member:
        log, found = open_member(member_config(self.root / f"n{number}", index_pending_max=4))
        return Member(log, found.terms, found.configurations, [0])

    def teardown(self) -> None:
        for member in self.members:
            member.log.store.close()
        shutil.rmtree(self.root)

    def _appended(self, member: Member, start: int) -> None:
        """Note where the records and the blank end that are there since `start`."""
        segment = member.log.store.config.segment_bytes
        while start < member.end:
            start += int.from_bytes(member.log.store.read_log(start, 4), "big")
            member.ends.append(start)
        assert start == member.end, (start, member.end, segment)

    # Leaders.

    @rule(number=MEMBERS)
    def lead(self, number: int) -> None:
        member = self.members[number]
        if member.end < self.committed or member.terms.term_at(self.committed) != self.committed_in:
            return  # no member would vote for it
        # A new leader knows the ends of queues from the tables in the log.
        for key, end in self.queue_ends.items():
            if member.log.store.appended_max_offset(*key) == 0:
                member.log.store._queues.find_or_make(*key).start_at(end)
        self.term += 1
        self.leader = number
        self._control(Control(self.term, f"n{number}"))

    @precondition(lambda self: self.leader is not None)
    @rule(learners=st.sets(st.sampled_from(["n3", "n4", "n5"])))
    def change_members(self, learners: set[str]) -> None:
        changed = Configuration(FOUNDERS.voters, tuple(sorted(learners)))
        self._control(Control(self.term, f"n{self.leader}", changed))

    def _control(self, control: Control) -> None:
        assert self.leader is not None
        member = self.members[self.leader]
        start = member.end
        end = member.log.append_control(control, ADDRESSES, 1000)
        if control.configuration is None:
            member.terms = member.terms.begin(control.term, start)
        else:
            member.configurations = member.configurations.add(end, control.configuration)
        self._appended(member, start)
        assert end == member.end

    @precondition(lambda self: self.leader is not None)
    @rule(
        topic=st.sampled_from("AB"),
        queue_id=st.integers(0, 1),
        size=st.integers(0, 1500),
        count=st.integers(1, 20),
    )
    def put(self, topic: str, queue_id: int, size: int, count: int) -> None:
        assert self.leader is not None
        member = self.members[self.leader]
        for _ in range(count):
            self.serial += 1
            start = member.end
            body = (b"%d:" % self.serial).ljust(size, b"x")
            result = member.log.store.put_message(
                message(body, topic=topic, queue_id=queue_id), 1000 + self.serial
            )
            assert result.status is PutStatus.PUT_OK, result.reason
            self._appended(member, start)

    # Followers.

    @precondition(lambda self: self.leader is not None)
    @rule(rest=st.sampled_from([8, 9, 100, 250, 400]))
    def fill_segment(self, rest: int) -> None:
        assert self.leader is not None
        segment = SEGMENT_BYTES
        size = segment - self.members[self.leader].end % segment - rest - record_size(0, 1, 0)
        if size >= 20:
            self.put("A", 0, size, 1)

    @precondition(lambda self: self.leader is not None)
    @rule()
    def leave_behind(self) -> None:
        assert self.leader is not None
        self.put("A", 1, 1000, 20)
        self.commit()
        self.delete_old_segments(self.leader)

    @precondition(lambda self: self.leader is not None)
    @rule()
    def commit(self) -> None:
        """Commit with a third member that is always there."""
        assert self.leader is not None
        leader = self.members[self.leader]
        leader.log.store.flush()
        self.committed, self.committed_in = leader.end, self.term
        for key in leader.log.store.queues():
            if key[0] not in RAFT_TOPICS:
                self.queue_ends[key] = leader.log.store.appended_max_offset(*key)

    @precondition(lambda self: self.leader is not None)
    @rule(size_max=st.sampled_from([1, 300, 2000, 1 << 20]), rounds=st.sampled_from([1, 3, 1000]))
    def follow(self, size_max: int, rounds: int) -> None:
        assert self.leader is not None
        leader, follower = self.members[self.leader], self.members[1 - self.leader]
        self._agree(leader, follower)
        while rounds and follower.end < leader.end:
            rounds -= 1
            start = follower.end
            body = leader.log.read(start, size_max)
            body = body[: leader.terms.run_end(start, leader.end) - start]
            term = leader.terms.term_of(start)
            if term != follower.terms.last_term:
                follower.terms = follower.terms.begin(term, start)
            set_by_bytes = follower.log.configurations_in(start, term, body)
            follower.log.write(LogWrite(start, term, body))
            for row in set_by_bytes:
                follower.configurations = follower.configurations.add(*row)
            self._appended(follower, start)

    def _agree(self, leader: Member, follower: Member) -> None:
        """Cut or empty the follower's log as COMPARE, TRUNCATE and INSTALL would."""
        common = follower.terms.meet(follower.end, leader.terms, leader.end)
        if common < 0:
            common = min(leader.begin, follower.begin)  # what is deleted was committed
        if common < leader.begin:
            rows = leader.configurations.drop_before(leader.begin).rows
            reset = LogReset(leader.begin, leader.terms.cut(leader.begin), rows[0])
            follower.log.reset(reset)
            follower.terms = reset.terms
            follower.configurations = ConfigurationTable((rows[0],))
            follower.ends = [leader.begin]
        elif common < follower.end:
            dispatch_all(follower.log.store)
            follower.log.truncate(LogTruncate(common))
            self._cut(follower, common)

    def _cut(self, member: Member, end: int) -> None:
        assert member.end == end
        member.ends = [one for one in member.ends if one <= end]
        member.terms = member.terms.cut(end)
        member.configurations = member.configurations.cut(end)

    # Flushes, deletions and crashes.

    @rule(number=MEMBERS)
    def flush(self, number: int) -> None:
        self.members[number].log.store.flush()

    @rule(number=MEMBERS)
    def flush_queues(self, number: int) -> None:
        self.members[number].log.store.flush_queues()

    @rule(number=MEMBERS)
    def delete_old_segments(self, number: int) -> None:
        member = self.members[number]
        store = member.log.store
        dispatch_all(store)
        store.flush_queues()
        floor = min(self.committed, member.end)
        member.log.check_disk(LONG_AFTER_MS, floor, lambda begin: None)
        begin = member.begin
        member.terms = member.terms.drop_before(begin)
        member.configurations = member.configurations.drop_before(begin)
        member.ends = [one for one in member.ends if one >= begin]

    @rule(number=MEMBERS, in_order=st.booleans())
    def restart(self, number: int, in_order: bool) -> None:
        member = self.members[number]
        end = member.end
        if in_order:
            member.log.store.close()
        else:
            crash(member.log.store)
        self._open(number)
        assert member.end == end

    @rule(number=MEMBERS, where=st.floats(0, 1), torn=st.integers(0, 60))
    def lose_power(self, number: int, where: float, torn: int) -> None:
        """Keep a beginning of the unflushed bytes; it may end in half a record."""
        member = self.members[number]
        store = member.log.store
        flushed = store.flushed_offset
        ends = [one for one in member.ends if one >= flushed] or [member.end]
        kept = ends[int(where * (len(ends) - 1))]
        config = store.config
        crash(store)
        for path in sorted(config.commitlog_path.iterdir()):
            begin = int(path.name)
            stop = max(0, kept + torn - begin)
            if stop < config.segment_bytes and kept < member.end:
                with path.open("r+b") as file:
                    file.truncate(stop)
                    file.truncate(config.segment_bytes)
        self._open(number, kept if kept < member.end else member.end)

    def _open(self, number: int, end: int | None = None) -> None:
        member = self.members[number]
        if self.leader == number:
            self.leader = None
        log, found = open_member(member.log.store.config)
        member.log = log
        found_end = log.store.max_phy_offset
        if end is not None and found_end > end:
            # The first bytes of a blank are enough.
            assert found_end % SEGMENT_BYTES == 0
            assert found_end == next(one for one in member.ends if one > end)
        elif end is not None and found_end < end:
            # A blank that nothing follows does not count.
            assert end % SEGMENT_BYTES == 0
            assert found_end == max(one for one in member.ends if one < end)
        self._cut(member, log.store.max_phy_offset)
        assert found.begin_offset == member.begin
        assert found.end_offset == member.end == log.store.flushed_offset
        assert found.terms == member.terms
        assert found.configurations == member.configurations

    # Invariants.

    @invariant()
    def same_terms_same_bytes(self) -> None:
        one, other = self.members
        common = one.terms.meet(one.end, other.terms, other.end)
        begin = max(one.begin, other.begin)
        while begin < common:
            piece = bytes(one.log.store.read_log(begin, common - begin))
            assert piece == bytes(other.log.store.read_log(begin, len(piece)))
            begin += len(piece)

    @invariant()
    def every_message_is_at_its_place(self) -> None:
        for member in self.members:
            store = member.log.store
            dispatch_all(store)
            for record in records_of(store.config):
                if record.topic not in RAFT_TOPICS:
                    entry = store.appended_entry(record.topic, record.queue_id, record.queue_offset)
                    assert entry is not None, record
                    assert entry[:2] == (record.phy_offset, record.size)


GroupMachine.TestCase.settings = settings(
    max_examples=80,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.reuse, Phase.generate],
)
TestRaftLogModel = GroupMachine.TestCase

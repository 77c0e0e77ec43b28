from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from support.handlers.consuming import ConsumeSide

from trioha.broker.offset_requests import FORWARDED_FIELD
from trioha.broker.offsets import ConsumerOffsetTable, OffsetCommit
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import CommandError, RemoteProtocolError
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand

names = st.sampled_from(["a", "b", "%RETRY%a"])
entries = st.dictionaries(
    st.tuples(names, names, st.integers(0, 3)), st.integers(0, 2**63 - 1), max_size=8
)


def table_of(
    values: dict[tuple[str, str, int], int], *, is_slave: bool = False
) -> ConsumerOffsetTable:
    table = ConsumerOffsetTable(is_slave=is_slave)
    for (group, topic, queue_id), offset in values.items():
        table.commit(group, topic, queue_id, offset)
    return table


def master_says(offset: int) -> bytes:
    return table_of({("g", "T", 0): offset}).encode()


# The table.


def test_unknown_progress_is_minus_one() -> None:
    table = ConsumerOffsetTable()
    assert table.query("g", "T", 0) == -1
    table.commit("g", "T", 0, 5)
    assert table.query("g", "T", 1) == -1


def test_commit_may_go_backwards() -> None:
    table = table_of({("g", "T", 0): 9})
    table.commit("g", "T", 0, 4)
    assert table.query("g", "T", 0) == 4


def test_advance_only_goes_forwards() -> None:
    table = table_of({("g", "T", 0): 9})
    table.advance("g", "T", 0, 4)
    assert table.query("g", "T", 0) == 9
    table.advance("g", "T", 0, 10)
    assert table.query("g", "T", 0) == 10


def test_negative_commit_changes_nothing() -> None:
    table = ConsumerOffsetTable()
    table.commit("g", "T", 0, -1)
    assert (len(table), table.dirty) == (0, False)


def test_only_changes_make_it_dirty() -> None:
    table = table_of({("g", "T", 0): 9})
    assert table.dirty
    table.dirty = False
    table.commit("g", "T", 0, 9)
    assert not table.dirty


@pytest.mark.parametrize(
    ("group", "topic", "queue_id", "offset"),
    [
        ("../g", "T", 0, 1),
        ("g", 'T"', 0, 1),
        ("g", "T@x", 0, 1),
        ("g", "T", -1, 1),
        ("g", "T", 70_000, 1),
        ("g", "T", 0, 2**63),
    ],
)
def test_entry_that_makes_no_sense_is_refused(
    group: str, topic: str, queue_id: int, offset: int
) -> None:
    table = ConsumerOffsetTable()
    with pytest.raises(CommandError):
        table.commit(group, topic, queue_id, offset)
    assert len(table) == 0


def test_number_of_entries_is_bounded() -> None:
    table = ConsumerOffsetTable(entries_max=2)
    table.commit("g", "T", 0, 1)
    table.commit("g", "T", 1, 1)
    with pytest.raises(CommandError):
        table.commit("g", "T", 2, 1)
    table.commit("g", "T", 1, 2)  # what is known goes on
    table.delete_topic("T")
    table.commit("g", "T", 2, 1)


def test_listings_and_deletions_by_topic_and_group() -> None:
    table = table_of({("g", "T", 0): 1, ("g", "U", 0): 2, ("h", "T", 0): 3, ("hg", "TT", 0): 4})
    assert table.topics_of("g") == ["T", "U"]
    assert table.groups_of("T") == ["g", "h"]
    table.delete_topic("T")
    assert table.groups_of("T") == []
    assert table.query("hg", "TT", 0) == 4
    table.delete_group("g")
    assert table.topics_of("g") == []
    assert len(table) == 1


# The file.


def test_text_is_rocketmqs() -> None:
    table = table_of({("g", "T", 0): 5, ("g", "T", 1): 7})
    assert table.encode() == b'{"offsetTable":{"T@g":{0:5,1:7}}}'
    assert ConsumerOffsetTable().encode() == b'{"offsetTable":{}}'


@settings(max_examples=60)
@given(entries)
def test_what_is_written_is_read(values: dict[tuple[str, str, int], int]) -> None:
    table = ConsumerOffsetTable()
    table.load(table_of(values).encode())
    for (group, topic, queue_id), offset in values.items():
        assert table.query(group, topic, queue_id) == offset
    assert len(table) == len(values)


@pytest.mark.parametrize(
    "text",
    [
        b'{\n\t"offsetTable":{\n\t\t"T@g":{0:5\n\t\t}\n\t}\n}',
        b'{"offsetTable":{"T@g":{"0":5}}}',
        b'{"offsetTable":{"T@g":{"0":"5"}},"dataVersion":{"counter":1}}',
        b'{"offsetTable":{"no-at":{0:1},"T@g@h":{0:1},"T@g":{0:5,1:-1,-2:3}}}',
    ],
)
def test_java_text_is_read_leniently(text: bytes) -> None:
    table = ConsumerOffsetTable()
    table.load(text)
    assert table.queues("g", "T") == {0: 5}
    assert len(table) == 1


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"{",
        b'{"offsetTable":[]}',
        b'{"offsetTable":{"T@g":5}}',
        b'{"offsetTable":{"T@g":{"a":5}}}',
        b'{"offsetTable":{"T@g":{0:"x"}}}',
    ],
)
@pytest.mark.parametrize("verb", ["load", "merge"])
def test_broken_text_changes_nothing(verb: str, text: bytes) -> None:
    table = table_of({("g", "T", 0): 1}, is_slave=True)
    before = table.encode()
    with pytest.raises(RemoteProtocolError):
        getattr(table, verb)(text)
    assert table.encode() == before


# A slave's merge rule, by the numbers of the module's text.


def test_rule_1_without_a_commit_of_our_own_the_masters_value_is_taken_even_backwards() -> None:
    slave = ConsumerOffsetTable(is_slave=True)
    slave.merge(master_says(9))
    slave.merge(master_says(4))
    assert slave.query("g", "T", 0) == 4
    assert slave.commits_to_tell() == []


def test_rule_2_a_master_that_caught_up_is_right_again() -> None:
    slave = ConsumerOffsetTable(is_slave=True)
    slave.commit("g", "T", 0, 7)
    slave.merge(master_says(8))
    assert slave.query("g", "T", 0) == 8
    assert slave.commits_to_tell() == []
    slave.merge(master_says(2))
    assert slave.query("g", "T", 0) == 2


def test_rule_3_a_returning_master_does_not_undo_what_was_committed_to_the_slave() -> None:
    slave = ConsumerOffsetTable(is_slave=True)
    slave.merge(master_says(5))
    slave.commit("g", "T", 0, 20)  # the master is down
    slave.merge(master_says(3))  # it is back, and its file was older still
    assert slave.query("g", "T", 0) == 20
    assert slave.commits_to_tell() == [OffsetCommit("g", "T", 0, 20)]


def test_rule_4_once_told_the_master_is_believed() -> None:
    slave = ConsumerOffsetTable(is_slave=True)
    slave.commit("g", "T", 0, 20)
    slave.merge(master_says(3))
    (commit,) = slave.commits_to_tell()
    slave.told(commit)
    assert slave.commits_to_tell() == []
    slave.merge(master_says(4))  # rewound on purpose
    assert slave.query("g", "T", 0) == 4


def test_rule_5_queues_the_master_does_not_mention_stay() -> None:
    slave = ConsumerOffsetTable(is_slave=True)
    slave.merge(master_says(5))
    slave.commit("g", "T", 1, 6)
    slave.merge(b'{"offsetTable":{}}')
    assert slave.queues("g", "T") == {0: 5, 1: 6}
    assert slave.commits_to_tell() == [OffsetCommit("g", "T", 1, 6)]


def test_commit_made_while_telling_is_told_too() -> None:
    slave = ConsumerOffsetTable(is_slave=True)
    slave.commit("g", "T", 0, 20)
    (commit,) = slave.commits_to_tell()
    slave.commit("g", "T", 0, 21)
    slave.told(commit)
    assert slave.commits_to_tell() == [OffsetCommit("g", "T", 0, 21)]


def test_repeating_what_the_master_knew_counts_as_a_commit_to_the_slave() -> None:
    slave = ConsumerOffsetTable(is_slave=True)
    slave.merge(master_says(10))
    slave.commit("g", "T", 0, 10)
    slave.merge(master_says(8))  # it crashed before it wrote the 10
    assert slave.query("g", "T", 0) == 10


def test_commits_of_our_own_survive_a_restart_of_the_slave() -> None:
    slave = ConsumerOffsetTable(is_slave=True)
    slave.merge(master_says(5))
    slave.commit("g", "T", 0, 20)
    text = slave.encode()
    assert text == b'{"offsetTable":{"T@g":{0:20}},"localCommits":{"T@g":{0:20}}}'
    restarted = ConsumerOffsetTable(is_slave=True)
    restarted.load(text)
    restarted.merge(master_says(5))
    assert restarted.query("g", "T", 0) == 20
    assert restarted.commits_to_tell() == [OffsetCommit("g", "T", 0, 20)]


def test_synchronized_values_are_no_commits_after_a_restart() -> None:
    slave = ConsumerOffsetTable(is_slave=True)
    slave.merge(master_says(9))
    restarted = ConsumerOffsetTable(is_slave=True)
    restarted.load(slave.encode())
    restarted.merge(master_says(4))  # rewound while the slave was down
    assert restarted.query("g", "T", 0) == 4


def test_slave_that_becomes_master_has_nothing_to_tell() -> None:
    table = ConsumerOffsetTable(is_slave=True)
    table.commit("g", "T", 0, 20)
    table.become_master()
    assert table.commits_to_tell() == []
    table.commit("g", "T", 0, 21)
    assert table.encode() == b'{"offsetTable":{"T@g":{0:21}}}'
    table.become_slave()
    table.merge(master_says(3))
    assert table.query("g", "T", 0) == 3


def test_master_reads_a_slaves_file_without_its_commits() -> None:
    slave = ConsumerOffsetTable(is_slave=True)
    slave.commit("g", "T", 0, 20)
    master = ConsumerOffsetTable()
    master.load(slave.encode())
    assert master.query("g", "T", 0) == 20
    assert master.commits_to_tell() == []


def test_deleted_topic_is_not_told() -> None:
    slave = ConsumerOffsetTable(is_slave=True)
    slave.commit("g", "T", 0, 20)
    slave.delete_topic("T")
    assert slave.commits_to_tell() == []


class OutageMachine(RuleBasedStateMachine):
    """A consumer that only moves on. It commits to the master, or to the slave while the master is
    down: the slave keeps the commit, however stale the master's file, until the master has it."""

    def __init__(self) -> None:
        super().__init__()
        self.master = ConsumerOffsetTable()
        self.saved = self.master.encode()
        self.slave = ConsumerOffsetTable(is_slave=True)
        self.is_up = True
        self.position = 0
        self.owed = -1

    @rule(step=st.integers(1, 5))
    def consume(self, step: int) -> None:
        self.position += step
        if self.is_up:
            self.master.commit("g", "T", 0, self.position)
        else:
            self.slave.commit("g", "T", 0, self.position)
            self.owed = self.position

    @rule()
    def persist(self) -> None:
        if self.is_up:
            self.saved = self.master.encode()

    @rule()
    def crash(self) -> None:
        self.is_up = False

    @rule()
    def come_back(self) -> None:
        if not self.is_up:
            self.is_up = True
            self.master = ConsumerOffsetTable()
            self.master.load(self.saved)

    @rule(tells=st.booleans())
    def synchronize(self, tells: bool) -> None:
        if not self.is_up:
            return
        self.slave.merge(self.master.encode())
        commits = self.slave.commits_to_tell()
        if self.master.query("g", "T", 0) >= self.owed:
            self.owed = -1
            assert commits == []
        else:
            assert commits == [OffsetCommit("g", "T", 0, self.owed)]
        for commit in commits if tells else ():
            self.master.advance(commit.group, commit.topic, commit.queue_id, commit.offset)
            self.slave.told(commit)
            self.owed = -1

    @rule()
    def restart_slave(self) -> None:
        text = self.slave.encode()
        self.slave = ConsumerOffsetTable(is_slave=True)
        self.slave.load(text)

    @invariant()
    def slave_keeps_what_it_owes(self) -> None:
        if self.owed >= 0:
            assert self.slave.query("g", "T", 0) == self.owed


TestOutageMachine = OutageMachine.TestCase
TestOutageMachine.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


@settings(max_examples=60)
@given(entries, entries)
def test_merge_without_own_commits_is_the_masters_table_over_ours(
    ours: dict[tuple[str, str, int], int], theirs: dict[tuple[str, str, int], int]
) -> None:
    slave = ConsumerOffsetTable(is_slave=True)
    slave.merge(table_of(ours).encode())
    slave.merge(table_of(theirs).encode())
    for (group, topic, queue_id), offset in {**ours, **theirs}.items():
        assert slave.query(group, topic, queue_id) == offset
    assert len(slave) == len({**ours, **theirs})


@settings(max_examples=60)
@given(entries, entries)
def test_merge_over_own_commits_is_the_larger_value(
    ours: dict[tuple[str, str, int], int], theirs: dict[tuple[str, str, int], int]
) -> None:
    slave = table_of(ours, is_slave=True)
    slave.merge(table_of(theirs).encode())
    for key in {**ours, **theirs}:
        assert slave.query(*key) == max(ours.get(key, -1), theirs.get(key, -1))
    behind = {key for key in ours if theirs.get(key, -1) < ours[key]}
    assert {(c.group, c.topic, c.queue_id) for c in slave.commits_to_tell()} == behind


# Requests 14 and 15.


def query(**fields: ExtValue) -> RemotingCommand:
    return RemotingCommand(
        RequestCode.QUERY_CONSUMER_OFFSET,
        {"consumerGroup": "g", "topic": "T", "queueId": "0", **fields},
    )


def update(offset: int, **fields: ExtValue) -> RemotingCommand:
    return RemotingCommand(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {
            "consumerGroup": "g",
            "topic": "T",
            "queueId": "0",
            "commitOffset": str(offset),
            **fields,
        },
    )


def test_update_then_query() -> None:
    side = ConsumeSide()
    assert side.ask(update(5)).code == 0
    response = side.ask(query())
    assert (response.code, response.ext_fields) == (0, {"offset": "5"})


def test_a_client_cannot_move_the_progress_of_transactions() -> None:
    side = ConsumeSide()
    refused = side.ask(update(5, consumerGroup="CID_RMQ_SYS_TRANS"))
    assert refused.code == ResponseCode.NO_PERMISSION
    assert side.offsets.query("CID_RMQ_SYS_TRANS", "T", 0) == -1


def test_new_group_on_a_fresh_queue_starts_at_zero() -> None:
    side = ConsumeSide()
    assert side.ask(query()).ext_fields == {"offset": "0"}
    side.put()
    assert side.ask(query()).ext_fields == {"offset": "0"}


def test_new_group_decides_itself_once_the_queue_has_lost_its_first_messages() -> None:
    side = ConsumeSide()
    side.put()
    side.put()
    side.store.queue_minimum["T", 0] = 1
    assert side.ask(query()).code == ResponseCode.QUERY_NOT_FOUND


def test_new_group_decides_itself_once_the_first_message_has_left_memory() -> None:
    side = ConsumeSide()
    side.put()
    side.store.in_memory_from = 1
    assert side.ask(query()).code == ResponseCode.QUERY_NOT_FOUND


def test_client_may_forbid_the_zero() -> None:
    side = ConsumeSide()
    assert side.ask(query(setZeroIfNotFound="false")).code == ResponseCode.QUERY_NOT_FOUND
    assert side.ask(query(setZeroIfNotFound="true")).code == 0


def test_update_of_an_unknown_topic_is_refused() -> None:
    side = ConsumeSide()
    assert side.ask(update(5, topic="Gone")).code == ResponseCode.TOPIC_NOT_EXIST


def test_update_may_go_backwards_unless_a_slave_tells_it() -> None:
    side = ConsumeSide()
    side.ask(update(9))
    assert side.ask(update(4, onlyForward="true")).code == 0
    assert side.offsets.query("g", "T", 0) == 9
    side.ask(update(12, onlyForward="true"))
    assert side.offsets.query("g", "T", 0) == 12
    side.ask(update(4))
    assert side.offsets.query("g", "T", 0) == 4


def test_slave_takes_updates_and_remembers_them() -> None:
    side = ConsumeSide(BrokerConfig(broker_role=BrokerRole.SLAVE, broker_id=1))
    assert side.ask(update(5)).code == 0
    assert side.offsets.commits_to_tell() == [OffsetCommit("g", "T", 0, 5)]


def test_update_without_its_offset_is_an_error() -> None:
    side = ConsumeSide()
    assert side.ask(update(5, commitOffset="x")).code == ResponseCode.SYSTEM_ERROR
    assert side.ask(update(5, commitOffset=None)).code == ResponseCode.SYSTEM_ERROR


def test_a_commit_that_another_node_sent_on_late_does_not_set_the_group_back() -> None:
    """A member of a set was cut off with a parked commit of 655; meanwhile 663 was acknowledged."""
    side = ConsumeSide()

    def commit(offset: int, *, forwarded: bool = False) -> RemotingCommand:
        fields: dict[str, ExtValue] = {"consumerGroup": "G", "topic": "T", "queueId": 3}
        fields["commitOffset"] = offset
        if forwarded:
            fields[FORWARDED_FIELD] = "true"
        answer = side.handle(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, fields))
        assert answer is not None
        return answer

    assert commit(663).code == ResponseCode.SUCCESS
    late = commit(655, forwarded=True)
    assert (late.code, side.offsets.query("G", "T", 3)) == (ResponseCode.SERVICE_NOT_AVAILABLE, 663)
    assert "at offset 663 already" in (late.remark or "")
    assert commit(663, forwarded=True).code == ResponseCode.SUCCESS
    assert commit(670, forwarded=True).code == ResponseCode.SUCCESS
    assert side.offsets.query("G", "T", 3) == 670
    assert commit(600).code == ResponseCode.SUCCESS, "asked of the master itself: a rewind"
    assert side.offsets.query("G", "T", 3) == 600

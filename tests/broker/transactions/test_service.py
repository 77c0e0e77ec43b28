from __future__ import annotations

import attrs
import pytest
from support.handlers.sending import WALL_MS, ProduceSide, at, send_v2
from support.handlers.transactions import (
    COMMIT,
    ROLL_BACK,
    UNKNOWN,
    end,
    half,
    prepare,
    stored,
    take_over,
)

from trioha.broker.transactions.records import committed_message, next_copy, op_message
from trioha.config import BrokerConfig, BrokerRole
from trioha.store.interface import PutResult, PutStatus
from trioha.wire.codes import RequestCode, ResponseCode, SysFlag
from trioha.wire.names import TRANS_GROUP, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from trioha.wire.properties import decode_properties, encode_properties
from trioha.wire.record import decode_record
from trioha.wire.remoting_command import RemotingCommand


def bodies_of_ops(side: ProduceSide) -> list[bytes]:
    return [bytes(message.body) for message in stored(side, TRANS_OP_HALF_TOPIC)]


def test_the_answer_names_the_transaction_by_which_a_proxy_ends_it() -> None:
    side = ProduceSide()
    assert side.send(half("K7")).ext_str("transactionId") == "K7"
    assert side.send(send_v2()).ext_str("transactionId", "") == ""


def test_a_half_message_is_not_in_its_topic_before_the_commit() -> None:
    side = ProduceSide()
    where = prepare(side)
    assert stored(side, "T") == []
    assert end(side, where).code == 0
    (message,) = stored(side, "T")
    assert message.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT
    assert bodies_of_ops(side) == [b"0"]
    assert len(side.transactions.pending) == 0


def test_a_rolled_back_message_never_gets_to_its_topic() -> None:
    side = ProduceSide()
    assert end(side, prepare(side), ROLL_BACK).code == 0
    assert stored(side, "T") == []
    assert bodies_of_ops(side) == [b"0"]


def test_a_producer_that_does_not_know_leaves_the_transaction_open() -> None:
    side = ProduceSide()
    assert end(side, prepare(side), UNKNOWN).code == 0
    assert len(side.transactions.pending) == 1


@pytest.mark.parametrize("first", [COMMIT, ROLL_BACK])
@pytest.mark.parametrize("second", [COMMIT, ROLL_BACK])
def test_a_finished_transaction_is_not_ended_again(first: int, second: int) -> None:
    side = ProduceSide()
    where = prepare(side)
    end(side, where, first)
    count = len(side.store.messages)
    response = end(side, where, second)
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "is finished" in (response.remark or "")
    assert len(side.store.messages) == count


def test_offsets_that_are_no_half_message_are_refused_and_nothing_is_stored() -> None:
    """Fault E3."""
    side = ProduceSide()
    where = prepare(side)
    forged = prepare(side, half("K2"))
    count = len(side.store.messages)
    for queue_offset, phy_offset in [
        (0, where.phy_offset + 1),
        (1, where.phy_offset),
        (0, forged.phy_offset),
        (7, where.phy_offset),
        (-1, where.phy_offset),
        (0, 1 << 62),
    ]:
        wrong = PutResult(PutStatus.PUT_OK, phy_offset, 0, queue_offset)
        response = end(side, wrong)
        assert response.code == ResponseCode.SYSTEM_ERROR
        assert "Find prepared transaction message failed" in (response.remark or "")
    assert len(side.store.messages) == count


def test_another_group_cannot_end_a_transaction() -> None:
    side = ProduceSide()
    response = end(side, prepare(side), group="other")
    assert response.code == ResponseCode.SYSTEM_ERROR
    assert "The producer group wrong" in (response.remark or "")
    assert stored(side, "T") == []


def test_an_unknown_outcome_is_refused() -> None:
    side = ProduceSide()
    assert end(side, prepare(side), 5).remark == "commitOrRollback field wrong: 5"


def test_a_slave_ends_nothing() -> None:
    side = ProduceSide()
    where = prepare(side)
    side.pipeline.role = BrokerRole.SLAVE
    assert end(side, where).code == ResponseCode.SERVICE_NOT_AVAILABLE


def test_a_store_that_is_full_keeps_the_transaction_open() -> None:
    side = ProduceSide()
    where = prepare(side)
    side.store.writable = False
    assert end(side, where).code == ResponseCode.SERVICE_NOT_AVAILABLE
    side.store.writable = True
    assert end(side, where).code == 0
    assert len(stored(side, "T")) == 1


def test_an_op_message_that_the_store_did_not_take_is_written_before_anything_else() -> None:
    side = ProduceSide()
    first, second = prepare(side), prepare(side, half("K2"))
    side.store.full_after = 1
    assert end(side, first).code == 0
    assert bodies_of_ops(side) == []
    side.store.full_after = None
    assert end(side, second).code == 0
    assert bodies_of_ops(side) == [b"0", b"1"]


def test_nothing_is_stored_between_a_commit_and_its_op_message() -> None:
    """Many messages between them would hide the commit from the next master."""
    side = ProduceSide()
    prepare(side)
    where = prepare(side, half("K2"))
    side.store.full_after = 1
    assert end(side, where).code == 0
    side.store.full_after = 1
    assert side.send(send_v2("T", e="1")).code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert bodies_of_ops(side) == [b"1"]
    side.store.full_after = None
    assert side.send(send_v2("T", e="1")).code == 0
    assert bodies_of_ops(side) == [b"1"]
    take_over(side)
    assert [copy.origin for copy in side.transactions.pending] == [0]


def test_whoever_takes_over_knows_what_is_open() -> None:
    side = ProduceSide()
    places = [prepare(side, half(f"K{number}")) for number in range(5)]
    end(side, places[1])
    end(side, places[3], ROLL_BACK)
    take_over(side)
    assert [copy.origin for copy in side.transactions.pending] == [0, 2, 4]
    assert end(side, places[1]).code == ResponseCode.SYSTEM_ERROR
    assert end(side, places[4]).code == 0


def test_a_commit_whose_op_message_was_lost_counts_after_a_switch() -> None:
    """The log that the new master holds may end between the two."""
    side = ProduceSide()
    where = prepare(side)
    view = side.store.look_message(where.phy_offset)
    assert view is not None
    side.store.put_message(committed_message(decode_record(view)), 1)
    take_over(side)
    assert end(side, where).code == ResponseCode.SYSTEM_ERROR
    assert len(stored(side, "T")) == 1
    # The op message is made up for.
    side.checks.run_due(at(), 1)
    assert bodies_of_ops(side) == [b"0"]


def test_progress_of_another_log_is_not_believed() -> None:
    side = ProduceSide()
    prepare(side)
    side.offsets.commit(TRANS_GROUP, TRANS_HALF_TOPIC, 0, 99)
    take_over(side)
    assert len(side.transactions.pending) == 1


def test_op_messages_of_rocketmq_5_finish_several() -> None:
    side = ProduceSide()
    for number in range(4):
        prepare(side, half(f"K{number}"))
    message = op_message(0, False, side.store.messages[0][0].store_host, 1)
    message.body = b"0,1,3,"
    side.store.put_message(message, 1)
    take_over(side)
    assert [copy.origin for copy in side.transactions.pending] == [2]


@pytest.mark.parametrize("is_committed", [False, True])
def test_copies_of_javas_broker_do_not_count_twice(is_committed: bool) -> None:
    """Java's broker was killed before it wrote that it was done with the half message."""
    side = ProduceSide()
    where = prepare(side)
    view = side.store.look_message(where.phy_offset)
    assert view is not None
    copied = next_copy(decode_record(view), 1)
    properties = decode_properties(copied.properties)
    del properties["TRAN_PREPARED_QUEUE_OFFSET"]
    copied.properties = encode_properties(properties)
    side.store.put_message(copied, WALL_MS)
    if is_committed:
        side.store.put_message(committed_message(decode_record(view)), WALL_MS)
    # Another one with the same id: its producer has tried again.
    prepare(side, half(born_ms=WALL_MS + 1))
    take_over(side)
    assert [copy.queue_offset for copy in side.transactions.pending] == [1, 2][is_committed:]


def test_too_many_open_transactions_are_refused() -> None:
    side = ProduceSide()
    side.transactions.pending_max = 2
    for number in range(2):
        prepare(side, half(f"K{number}"))
    response = side.send(half("K3"))
    assert response.code == ResponseCode.SYSTEM_BUSY
    assert "trioha transactions list" in (response.remark or "")


def test_a_broker_may_take_no_transactions() -> None:
    side = ProduceSide(attrs.evolve(BrokerConfig(), reject_transaction_message=True))
    assert side.send(half()).code == ResponseCode.NO_PERMISSION


def test_an_answer_waits_for_what_a_message_would_wait_for() -> None:
    side = ProduceSide(attrs.evolve(BrokerConfig(), broker_role=BrokerRole.SYNC_MASTER))
    side.replicas.push2slave_max_offset = 1 << 40
    where = prepare_waiting(side)
    side.replicas.push2slave_max_offset = 0
    request_answer = end_waiting(side, where)
    assert request_answer == []
    side.replicas.push2slave_max_offset = side.store.max_phy_offset
    side.pipeline.release_acknowledged(1)
    assert [command.code for command in side.channel.sent[1:]] == [0]


def prepare_waiting(side: ProduceSide) -> PutResult:
    assert side.sender.send(side.channel, half(), at()) is None
    return side.store.messages[-1][1]


def end_waiting(side: ProduceSide, where: PutResult) -> list[object]:
    before = len(side.channel.sent)
    request = RemotingCommand(
        RequestCode.END_TRANSACTION,
        {
            "producerGroup": "pg",
            "tranStateTableOffset": str(where.queue_offset),
            "commitLogOffset": str(where.phy_offset),
            "commitOrRollback": "8",
            "msgId": "K1",
        },
    )
    assert side.ender.end(side.channel, request, at()) is None
    return list(side.channel.sent[before:])

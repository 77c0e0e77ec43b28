from __future__ import annotations

import pytest
from support.handlers.sending import STORE_HOST, WALL_MS, ProduceSide, at
from support.handlers.transactions import half, prepare, stored

from trioha.broker.send_header import read_send_header
from trioha.broker.transactions.records import (
    FinishedOffsets,
    check_request,
    committed_message,
    copy_of,
    copy_of_sent,
    finished_offsets,
    next_copy,
    op_message,
)
from trioha.errors import CommandError
from trioha.store.interface import PutMessage
from trioha.wire.codes import RequestCode, ResponseCode, SysFlag
from trioha.wire.names import TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from trioha.wire.properties import PROPERTIES_BYTES_MAX, decode_properties
from trioha.wire.record import Record, decode_record

HOUR_MS = 3_600_000


def half_record(side: ProduceSide, **properties: str) -> Record:
    where = prepare(side, half(more=properties))
    view = side.store.look_message(where.phy_offset)
    assert view is not None
    return decode_record(view)


def op_record(side: ProduceSide, message: PutMessage) -> Record:
    view = side.store.look_message(side.store.put_message(message, WALL_MS).phy_offset)
    assert view is not None
    return decode_record(view)


def test_a_half_message_keeps_its_destination_and_loses_its_transaction_type() -> None:
    record = half_record(ProduceSide(), TAGS="A")
    assert (record.topic, record.queue_id) == (TRANS_HALF_TOPIC, 0)
    assert record.sys_flag & SysFlag.TRANSACTION_MASK == 0
    assert record.properties["REAL_TOPIC"] == "T"
    assert record.properties["REAL_QID"] == "1"
    assert record.properties["TRAN_MSG"] == "true"


def test_a_producer_cannot_pass_a_half_message_off_as_a_copy_of_another() -> None:
    record = half_record(ProduceSide(), TRAN_PREPARED_QUEUE_OFFSET="0", TRANSACTION_CHECK_TIMES="9")
    assert "TRAN_PREPARED_QUEUE_OFFSET" not in record.properties
    assert "TRANSACTION_CHECK_TIMES" not in record.properties


def test_the_committed_message_goes_where_the_half_message_says() -> None:
    record = half_record(ProduceSide(), TAGS="A")
    message = committed_message(record)
    assert (message.topic, message.queue_id) == ("T", 1)
    assert message.sys_flag & SysFlag.TRANSACTION_MASK == SysFlag.TRANSACTION_COMMIT
    assert message.prepared_transaction_offset == record.phy_offset
    assert decode_properties(message.properties) == record.properties


@pytest.mark.parametrize(
    ("properties", "due_ms"),
    [
        ({}, 6_000),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "30"}, 30_000),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "soon"}, 6_000),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "-1"}, 6_000),
        ({"CHECK_IMMUNITY_TIME_IN_SECONDS": "9" * 30}, HOUR_MS),
    ],
)
def test_the_first_check_comes_after_the_time_out_or_when_the_message_says(
    properties: dict[str, str], due_ms: int
) -> None:
    copy = copy_of(half_record(ProduceSide(), **properties), 6_000, 60_000, HOUR_MS)
    assert copy.due_ms == WALL_MS + due_ms
    assert copy.check_times == 0


def test_a_copy_names_the_half_message_and_counts_its_checks() -> None:
    side = ProduceSide()
    record = half_record(side)
    again = op_record(side, next_copy(record, 1))
    third = copy_of(op_record(side, next_copy(again, 2)), 6_000, 60_000, HOUR_MS)
    assert (third.origin, third.queue_offset, third.check_times) == (0, 2, 2)
    assert third.due_ms == WALL_MS + 60_000


@pytest.mark.parametrize(
    ("body", "offsets"),
    [
        (b"7", (7,)),
        (b"1,2,3,", (1, 2, 3)),  # RocketMQ 5
        (b"", ()),
        (b"x,-1,4", (4,)),
    ],
)
def test_op_messages_of_one_and_of_several_offsets_are_read(
    body: bytes, offsets: tuple[int, ...]
) -> None:
    message = op_message(1, False, STORE_HOST, WALL_MS)
    message.body = body
    assert finished_offsets(op_record(ProduceSide(), message)) == FinishedOffsets(offsets, False)


def test_an_op_message_is_as_java_writes_it() -> None:
    record = op_record(ProduceSide(), op_message(12, False, STORE_HOST, WALL_MS))
    assert (record.topic, record.queue_id, record.body) == (TRANS_OP_HALF_TOPIC, 0, b"12")
    assert record.tags == "d"
    copied = op_record(ProduceSide(), op_message(12, True, STORE_HOST, WALL_MS))
    assert finished_offsets(copied) == FinishedOffsets((12,), True)


def test_a_check_shows_the_producer_its_message_and_where_the_copy_is() -> None:
    side = ProduceSide()
    record = half_record(side, TAGS="A")
    request = check_request(record, copy_of(record, 1, 1, 1))
    shown = decode_record(request.body_bytes())
    assert request.code == RequestCode.CHECK_TRANSACTION_STATE
    assert (shown.topic, shown.queue_id, shown.body) == ("T", 1, record.body)
    assert request.ext_fields["tranStateTableOffset"] == "0"
    assert request.ext_fields["commitLogOffset"] == str(record.phy_offset)
    assert request.ext_fields["msgId"] == request.ext_fields["transactionId"] == "K1"


@pytest.mark.parametrize(
    ("more", "code"),
    [
        ({"DELAY": "3"}, ResponseCode.MESSAGE_ILLEGAL),
        ({"PGROUP": ""}, ResponseCode.MESSAGE_ILLEGAL),
        ({"long": "x" * (PROPERTIES_BYTES_MAX - 200)}, ResponseCode.MESSAGE_ILLEGAL),
    ],
)
def test_a_half_message_that_could_not_be_ended_is_refused(
    more: dict[str, str], code: ResponseCode
) -> None:
    """Fault A16."""
    side = ProduceSide()
    assert side.send(half(more=more)).code == code
    assert stored(side, TRANS_HALF_TOPIC) == []


def test_a_reply_cannot_be_transactional() -> None:
    side = ProduceSide()
    request = half()

    with pytest.raises(CommandError):
        side.sender.receive(side.channel, request, read_send_header(request), at())


@pytest.mark.parametrize("immunity", ["", "5", "0", "99999999999", "x", "\u0665"])
@pytest.mark.parametrize("born_ms", [WALL_MS, WALL_MS - 70_000, WALL_MS + 70_000, 0])
def test_a_half_message_is_noted_as_it_would_be_read_from_the_log(
    immunity: str, born_ms: int
) -> None:
    side = ProduceSide()
    more = {"CHECK_IMMUNITY_TIME_IN_SECONDS": immunity} if immunity else {}
    where = prepare(side, half(born_ms=born_ms, more=more))
    view = side.store.look_message(where.phy_offset)
    assert view is not None
    read = copy_of(decode_record(view), 6000, 60_000, HOUR_MS)
    message, result = side.store.messages[-1]
    assert copy_of_sent(message, result, 6000, HOUR_MS) == read
    assert list(side.transactions.pending) == [copy_of_sent(message, result, 6000, 72 * HOUR_MS)]

"""Large frames are judged before their bodies are read, and rejected ones are not kept."""

from __future__ import annotations

import tracemalloc

import pytest

from trioha.errors import RemoteProtocolError
from trioha.remoting.channel import Channel, Instant
from trioha.remoting.connection import HEADER_BYTES_MAX, FrameRejected, RemotingConnection
from trioha.remoting.outbox import Outbox
from trioha.remoting.requests import (
    EARLY_ANSWERS_BYTES,
    TURN_REQUESTS,
    TURN_UNSENT_BYTES,
    Requests,
)
from trioha.remoting.traffic_budget import FrameLimits, TrafficBudget
from trioha.security.requirement import CONTROL_BYTES, LIST_BYTES
from trioha.security.requirements import Port, body_limits
from trioha.wire.codes import RESPONSE_FLAG, RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand, decode_frame, encode

MESSAGE_BYTES = 4 << 20
PEEK = encode(RemotingCommand(RequestCode.GET_MAX_OFFSET, {"topic": "T"}, opaque=77))


def reader(budget: TrafficBudget | None = None) -> RemotingConnection:
    limits = body_limits(Port.BROKER, MESSAGE_BYTES)
    return RemotingConnection(limits=FrameLimits(limits, budget or TrafficBudget(1 << 40)))


def frame(code: int, size: int, opaque: int = 1, flag: int = 0) -> bytes:
    return encode(RemotingCommand(code, {"topic": "T"}, bytes(size), opaque=opaque, flag=flag))


def rejection(connection: RemotingConnection) -> FrameRejected:
    with pytest.raises(FrameRejected) as rejected:
        connection.next_frame()
    return rejected.value


@pytest.mark.parametrize(
    ("code", "limit", "answer"),
    [
        (RequestCode.HEART_BEAT, LIST_BYTES, ResponseCode.SYSTEM_ERROR),
        (RequestCode.PULL_MESSAGE, CONTROL_BYTES, ResponseCode.SYSTEM_ERROR),
        (RequestCode.SEND_MESSAGE_V2, MESSAGE_BYTES, ResponseCode.MESSAGE_ILLEGAL),
        (31_999, CONTROL_BYTES, ResponseCode.SYSTEM_ERROR),
    ],
)
def test_a_body_over_the_limit_of_its_code_is_rejected_by_its_header(
    code: int, limit: int, answer: int
) -> None:
    budget = TrafficBudget(1 << 40)
    connection = reader(budget)
    fits, too_large = frame(code, limit), frame(code, limit + 1)
    connection.receive_data(fits)
    assert connection.next_frame() is not None
    connection.receive_data(too_large[:400])
    found = rejection(connection)
    assert (found.code, found.command.opaque) == (answer, 1)
    assert f"at most {limit} bytes" in found.remark
    assert (budget.too_large_count, budget.frames_bytes) == (1, 0)
    assert connection.missing_bytes == len(too_large) - 400
    for at in range(400, len(too_large), 50_000):
        connection.receive_data(too_large[at : at + 50_000])
        assert connection.next_frame() is None
        assert connection.statistics().unfinished_bytes == 0
    assert connection.missing_bytes == 0
    connection.receive_data(PEEK)
    command = connection.next_frame()
    assert command is not None
    assert command.opaque == 77


def test_frames_behind_a_rejected_one_are_read_however_they_are_cut() -> None:
    stream = frame(RequestCode.HEART_BEAT, LIST_BYTES + 1, 5) + PEEK + frame(34, 100_000, 6)
    for step in (1, 7, 65_000, len(stream)):
        connection = reader()
        opaques: list[int] = []
        rejected: list[int] = []
        for at in range(0, len(stream), step):
            connection.receive_data(stream[at : at + step])
            while True:
                try:
                    command = connection.next_frame()
                except FrameRejected as found:
                    rejected.append(found.command.opaque)
                    continue
                if command is None:
                    break
                opaques.append(command.opaque)
        assert (rejected, opaques) == ([5], [77, 6]), step


def test_an_answer_that_was_not_asked_for_is_not_read_and_one_that_was_is() -> None:
    connection = reader()
    asked = RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO)
    answers: list[RemotingCommand | None] = []
    connection.expect_response(asked, answers.append)
    connection.receive_data(frame(0, 1 << 20, asked.opaque + 1, RESPONSE_FLAG))
    assert rejection(connection).command.is_response
    connection.receive_data(frame(0, 1 << 20, asked.opaque, RESPONSE_FLAG))
    command = connection.next_frame()
    assert command is not None
    assert len(command.body_bytes()) == 1 << 20


def test_a_header_beyond_all_headers_closes_the_connection() -> None:
    connection = reader()
    head = encode(RemotingCommand(11, {"junk": "x" * HEADER_BYTES_MAX}))[:12]
    connection.receive_data(head)
    with pytest.raises(RemoteProtocolError, match="header"):
        connection.next_frame()


def test_frames_wait_for_no_room_that_others_hold_but_log_bytes_are_read() -> None:
    budget = TrafficBudget(5 << 20)
    first, second = reader(budget), reader(budget)
    large = frame(RequestCode.SEND_MESSAGE_V2, 3 << 20)
    first.receive_data(large[:100_000])
    assert first.next_frame() is None
    assert budget.frames_bytes == len(large)
    second.receive_data(large[:100_000])
    found = rejection(second)
    assert found.code == ResponseCode.SYSTEM_BUSY
    assert "trafficBytesMax" in found.remark
    assert budget.rejected_count == 1
    log = reader(budget)
    log.is_replication = True
    log.receive_data(frame(RequestCode.TRIOHA_RAFT_APPEND, 8 << 20)[:100_000])
    assert log.next_frame() is None
    log.fail_pending()
    first.receive_data(large[100_000:])
    assert first.next_frame() is not None
    assert budget.used_bytes == 0


def test_parts_of_small_frames_and_of_headers_count() -> None:
    budget = TrafficBudget(1 << 20)
    small = frame(RequestCode.SEND_MESSAGE_V2, 60_000)
    header = encode(RemotingCommand(11, {"junk": "x" * 200_000}))
    readers = [reader(budget) for _ in range(3)]
    readers[0].receive_data(PEEK + small[:10])
    assert readers[0].next_frame() is not None
    readers[1].receive_data(small[:2])
    readers[2].receive_data(header[:100])
    for one in readers:
        assert one.next_frame() is None
    assert len(small) + 4 < budget.frames_bytes - 200_000 < len(small) + 300
    readers[0].receive_data(small[10:50_000])
    readers[0].receive_data(small[50_000:])
    readers[2].receive_data(header[100:])
    for one in (readers[0], readers[2]):
        assert one.next_frame() is not None
    assert budget.used_bytes == 4
    readers[1].fail_pending()
    assert budget.used_bytes == 0


def test_a_large_header_without_room_for_it_closes_the_connection() -> None:
    budget = TrafficBudget(1 << 20)
    header = encode(RemotingCommand(11, {"junk": "x" * 200_000}))
    readers = [reader(budget) for _ in range(6)]
    for one in readers:
        one.receive_data(header[:100])
    for one in readers[:5]:
        assert one.next_frame() is None
    with pytest.raises(RemoteProtocolError, match="no room for a header"):
        readers[5].next_frame()
    # Small frames are read: a node that is flooded serves its clients.
    readers[5] = reader(budget)
    readers[5].receive_data(frame(RequestCode.SEND_MESSAGE_V2, 60_000)[:100])
    assert readers[5].next_frame() is None
    for one in readers:
        one.fail_pending()
    assert budget.used_bytes == 0


def test_a_connection_that_ends_gives_its_room_back() -> None:
    budget = TrafficBudget(5 << 20)
    connection = reader(budget)
    connection.receive_data(frame(RequestCode.SEND_MESSAGE_V2, 3 << 20)[:100_000])
    assert connection.next_frame() is None
    connection.fail_pending()
    assert budget.used_bytes == 0


def test_single_bytes_cost_little_more_than_they_are() -> None:
    data = frame(RequestCode.SEND_MESSAGE_V2, 1 << 18)
    connection = reader()
    tracemalloc.start()
    try:
        for at in range(len(data) - 1):
            connection.receive_data(data[at : at + 1])
            assert connection.next_frame() is None
        assert tracemalloc.get_traced_memory()[0] < 2 * len(data)
    finally:
        tracemalloc.stop()
    connection.receive_data(data[-1:])
    command = connection.next_frame()
    assert command is not None
    assert len(command.body_bytes()) == 1 << 18


class Turns:
    """The requests of one read, handled turn by turn."""

    def __init__(
        self, data: bytes, answer_bytes: int = 0, ms_each: int = 0, *, peer_reads: bool = True
    ) -> None:
        self.handled = 0
        self.now_ms = 0
        self.outbox = Outbox(1 << 30)
        self._answer_bytes = answer_bytes
        self._ms_each = ms_each
        self._peer_reads = peer_reads
        machine = reader()
        machine.receive_data(data)
        self.sent_early: list[tuple[int, int]] = []
        """Requests handled by then, and buffers sent."""
        self._requests = Requests(
            machine, self.outbox, self._handle, lambda: self.now_ms, self._answer_early
        )

    def turn(self) -> bool:
        return self._requests.handle_all(NOBODY, Instant(self.now_ms, 0))

    def _answer_early(self) -> None:
        self.sent_early.append((self.handled, len(self.outbox.buffers)))
        buffers = self.outbox.take()
        self.outbox.sent([] if self._peer_reads else buffers)

    def _handle(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        self.handled += 1
        self.now_ms += self._ms_each
        return request.response(body=bytes(self._answer_bytes))


NOBODY: Channel = None  # type: ignore[assignment]  # no handler here asks for it


def test_the_requests_of_one_read_take_several_turns() -> None:
    turns = Turns(PEEK * (TURN_REQUESTS + 10))
    assert turns.turn()
    assert turns.handled == TURN_REQUESTS
    assert not turns.turn()
    assert turns.handled == TURN_REQUESTS + 10


def test_a_turn_ends_when_its_time_is_up() -> None:
    turns = Turns(PEEK * 10, ms_each=15)
    assert turns.turn()
    assert turns.handled == 2


def test_a_turn_ends_when_many_answers_wait_to_be_read() -> None:
    turns = Turns(PEEK * 100, answer_bytes=200_000, peer_reads=False)
    assert turns.turn()
    assert turns.outbox.size < TURN_UNSENT_BYTES + 400_000


def test_large_answers_to_a_part_of_a_read_leave_before_the_rest_is_handled() -> None:
    turns = Turns(PEEK * 6, answer_bytes=EARLY_ANSWERS_BYTES // 2)
    assert turns.turn()
    # Other clients have their turn before all that one consumer asked for at once is answered.
    assert turns.handled == 4
    assert not turns.turn()
    # The last answers leave at the end of the turn, as answers to a short read do.
    assert [handled for handled, _ in turns.sent_early] == [2, 4]
    assert turns.handled == 6
    assert turns.outbox.buffers


def test_answers_that_have_waited_for_a_millisecond_leave_before_the_rest_is_handled() -> None:
    turns = Turns(PEEK * 4, ms_each=1)
    assert not turns.turn()
    assert turns.sent_early == [(1, 1), (2, 1), (3, 1)]
    turns = Turns(PEEK * 4)
    assert not turns.turn()
    assert turns.sent_early == []


def test_a_rejected_request_gets_an_answer_in_its_place() -> None:
    turns = Turns(PEEK + frame(RequestCode.HEART_BEAT, LIST_BYTES + 1, 5) + PEEK)
    assert not turns.turn()
    answers = [decode_frame(bytes(one)) for one in turns.outbox.buffers]
    assert [(answer.opaque, answer.code) for answer in answers] == [
        (77, 0),
        (5, ResponseCode.SYSTEM_ERROR),
        (77, 0),
    ]

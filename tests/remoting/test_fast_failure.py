from __future__ import annotations

import attrs
import pytest

from trioha.config import BrokerConfig
from trioha.remoting.channel import Channel, Instant
from trioha.remoting.connection import RemotingConnection
from trioha.remoting.fast_failure import SILENCE_MS, WaitLimits, Waits
from trioha.remoting.outbox import Outbox
from trioha.remoting.requests import Requests
from trioha.wire.codes import ONEWAY_FLAG, RequestCode, ResponseCode
from trioha.wire.need_data import NEED_DATA
from trioha.wire.remoting_command import RemotingCommand, encode

NOBODY: Channel = None  # type: ignore[assignment]  # no handler here asks for it
SEND, PULL = RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE


@pytest.fixture
def limits() -> WaitLimits:
    return WaitLimits(BrokerConfig())


class Connection:
    """A connection of a node with these limits: what is handled, what is answered."""

    def __init__(self, limits: WaitLimits) -> None:
        self.handled: list[int] = []
        self._machine = RemotingConnection()
        self._outbox = Outbox(1 << 30)
        self._requests = Requests(
            self._machine, self._outbox, self._handle, lambda: 0, lambda: None, limits
        )

    def read(
        self, *codes: int, waited_ms: int, now_ms: int, flag: int = 0
    ) -> list[tuple[int, str]]:
        """Read requests; return codes and remarks of the answers."""
        self._machine.receive_data(
            b"".join(encode(RemotingCommand(code, {}, flag=flag)) for code in codes)
        )
        assert not self._requests.handle_all(NOBODY, Instant(now_ms, 0), waited_ms=waited_ms)
        client = RemotingConnection()
        client.receive_data(b"".join(self._outbox.take()))
        self._outbox.sent([])
        found = []
        while (answer := client.next_command()) is not NEED_DATA:
            found.append((answer.code, answer.remark or ""))
        return found

    def _handle(self, _: Channel, request: RemotingCommand, __: Instant) -> RemotingCommand:
        self.handled.append(request.code)
        return request.response()


def test_a_send_that_waited_too_long_is_told_to_go_elsewhere(limits: WaitLimits) -> None:
    connection = Connection(limits)
    connection.read(SEND, waited_ms=250, now_ms=1_000)
    ((code, remark),) = connection.read(SEND, waited_ms=260, now_ms=1_200)
    assert code == ResponseCode.SYSTEM_BUSY
    assert remark == (
        "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while, period in queue: 260ms, "
        "limit: 200ms (waitTimeMillsInSendQueue)"
    )
    assert connection.handled == [SEND]
    assert limits.rejected_count == 1


def test_what_waited_while_the_node_stood_still_is_handled(limits: WaitLimits) -> None:
    connection = Connection(limits)
    assert connection.read(SEND, SEND, waited_ms=2_000, now_ms=5_000) == [(0, ""), (0, "")]
    assert connection.read(SEND, waited_ms=1_999, now_ms=5_199) == [(0, "")]


def test_a_request_in_time_ends_it(limits: WaitLimits) -> None:
    connection = Connection(limits)
    for now_ms, waited_ms in ((0, 500), (100, 199), (200, 500), (399, 500)):
        assert connection.read(SEND, waited_ms=waited_ms, now_ms=now_ms) == [(0, "")]
    assert connection.read(SEND, waited_ms=500, now_ms=400)[0][0] == ResponseCode.SYSTEM_BUSY


def test_each_kind_of_request_has_its_limit(limits: WaitLimits) -> None:
    connection = Connection(limits)
    connection.read(SEND, waited_ms=400, now_ms=0)
    busy, fine = ResponseCode.SYSTEM_BUSY, 0
    kinds = (
        *(SEND, RequestCode.END_TRANSACTION, PULL, RequestCode.HEART_BEAT),
        *(RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.SEND_REPLY_MESSAGE_V2),
        *(RequestCode.ACK_MESSAGE, RequestCode.BATCH_ACK_MESSAGE),
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
    )
    for waited_ms, codes in (
        (2_999, [busy, fine, fine, fine, fine, fine, fine, fine, fine]),
        (4_999, [busy, busy, fine, fine, fine, fine, busy, busy, busy]),
        (30_999, [busy, busy, busy, fine, fine, fine, busy, busy, busy]),
        (31_000, [busy, busy, busy, busy, fine, fine, busy, busy, busy]),
    ):
        answers = connection.read(*kinds, waited_ms=waited_ms, now_ms=400)
        assert [code for code, _ in answers] == codes, waited_ms


def test_requests_that_want_no_answer_are_handled(limits: WaitLimits) -> None:
    connection = Connection(limits)
    for now_ms in (0, 1_000):
        assert not connection.read(SEND, waited_ms=5_000, now_ms=now_ms, flag=ONEWAY_FLAG)
    assert connection.handled == [SEND, SEND]


def test_an_operator_can_change_it_while_the_node_runs(limits: WaitLimits) -> None:
    config = BrokerConfig()
    waits = Waits(limits)
    limits.set(attrs.evolve(config, broker_fast_failure_enable=False))
    assert not any(waits.is_behind(60_000, now_ms) for now_ms in range(0, 10_000, 50))
    limits.set(attrs.evolve(config, wait_time_mills_in_send_queue=0))
    assert waits.is_behind(0, 10_000)
    assert waits.rejection(SEND, 0)
    assert not waits.rejection(PULL, 0)


def test_a_silent_connection_begins_anew(limits: WaitLimits) -> None:
    waits = Waits(limits)
    assert not waits.is_behind(300, 0)
    assert not waits.is_behind(300, SILENCE_MS + 1)
    assert waits.is_behind(300, SILENCE_MS + 201)

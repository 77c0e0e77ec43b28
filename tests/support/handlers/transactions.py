"""Half messages, their ends and their checks on a `ProduceSide`."""

from __future__ import annotations

from collections.abc import Mapping

from support.handlers.sending import WALL_MS, FakeChannel, ProduceSide, at, send_v2
from trioha.broker.clients import ClientInfo
from trioha.errors import CommandError
from trioha.store.interface import PutMessage, PutResult
from trioha.wire.codes import ONEWAY_FLAG, LanguageCode, RequestCode
from trioha.wire.names import TRANS_HALF_TOPIC
from trioha.wire.properties import encode_properties
from trioha.wire.remoting_command import RemotingCommand

COMMIT, ROLL_BACK, UNKNOWN = 8, 12, 0


def half(
    key: str = "K1",
    *,
    group: str = "pg",
    topic: str = "T",
    queue_id: int = 1,
    born_ms: int = WALL_MS,
    more: Mapping[str, str] | None = None,
) -> RemotingCommand:
    """A producer's half message; `more`: further properties."""
    properties = {"UNIQ_KEY": key, "TRAN_MSG": "true", "PGROUP": group, "WAIT": "true"}
    properties |= more or {}
    return send_v2(
        topic,
        properties=encode_properties(properties).decode(),
        e=str(queue_id),
        f="4",
        g=str(born_ms),
    )


def prepare(
    side: ProduceSide, request: RemotingCommand | None = None, now_ms: int = 0
) -> PutResult:
    """Send a half message and return where it went."""
    response = side.send(half() if request is None else request, at(now_ms))
    assert response.code == 0, response.remark
    message, result = side.store.messages[-1]
    assert message.topic == TRANS_HALF_TOPIC
    return result


def end(
    side: ProduceSide,
    where: PutResult,
    outcome: int = COMMIT,
    *,
    group: str = "pg",
    oneway: bool = False,
    now_ms: int = 0,
    **fields: str,
) -> RemotingCommand:
    """End a transaction and return the answer."""
    request = RemotingCommand(
        RequestCode.END_TRANSACTION,
        {
            "producerGroup": group,
            "tranStateTableOffset": str(where.queue_offset),
            "commitLogOffset": str(where.phy_offset),
            "commitOrRollback": str(outcome),
            "fromTransactionCheck": "false",
            "msgId": "K1",
            "transactionId": "K1",
            **fields,
        },
        opaque=5,
        flag=ONEWAY_FLAG if oneway else 0,
    )
    try:
        response = side.ender.end(side.channel, request, at(now_ms))
    except CommandError as error:
        return request.response(error.code, error.remark)
    assert response is not None
    return response


def producer(side: ProduceSide, group: str = "pg") -> FakeChannel:
    """Connect a producer of a group."""
    channel = FakeChannel()
    side.producers.register(group, channel, ClientInfo("p", LanguageCode.JAVA, 409), 0)
    return channel


def stored(side: ProduceSide, topic: str) -> list[PutMessage]:
    return [message for message, _ in side.store.messages if message.topic == topic]


def run_checks(side: ProduceSide, now_ms: int, budget: int = 256) -> None:
    side.checks.run_due(at(now_ms), budget)


def take_over(side: ProduceSide) -> None:
    """Read the table anew, as a broker that becomes master."""
    side.transactions.load()
    side.checks.begin()

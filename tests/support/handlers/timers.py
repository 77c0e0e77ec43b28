"""Timer messages, their recall and their delivery on a `ProduceSide`."""

from __future__ import annotations

from collections.abc import Mapping

from support.handlers.sending import WALL_MS, ProduceSide, at, send_v2
from trioha.errors import CommandError
from trioha.store.interface import PutMessage
from trioha.wire.codes import RequestCode
from trioha.wire.names import TIMER_TOPIC
from trioha.wire.properties import decode_properties, encode_properties
from trioha.wire.remoting_command import RemotingCommand

BUDGET = 256


def timer(
    side: ProduceSide,
    key: str = "K1",
    *,
    topic: str = "T",
    now_ms: int = 0,
    properties: Mapping[str, str] | None = None,
    **more: str | int,
) -> RemotingCommand:
    """Send a message with these properties, and return the answer."""
    pairs = {"UNIQ_KEY": key, "WAIT": "true", **(properties or {})}
    pairs.update((name, str(value)) for name, value in more.items())
    request = send_v2(topic, properties=encode_properties(pairs).decode())
    return side.send(request, at(now_ms))


def handle_in(response: RemotingCommand) -> str:
    """The recall handle of an answer; empty without one."""
    return response.ext_str("recallHandle", "")


def recall(side: ProduceSide, handle: str, *, topic: str = "T", now_ms: int = 0) -> RemotingCommand:
    """Take a message back, and return the answer."""
    request = RemotingCommand(
        RequestCode.RECALL_MESSAGE,
        {"producerGroup": "pg", "topic": topic, "recallHandle": handle},
        opaque=9,
    )
    try:
        response = side.recaller.recall(side.channel, request, at(now_ms))
    except CommandError as error:
        return request.response(error.code, error.remark)
    assert response is not None
    return response


def run_until(side: ProduceSide, now_ms: int, from_ms: int = 0, *, is_flushed: bool = True) -> None:
    """Sleep until each deadline and run what is due, up to `now_ms`, as the shell does."""
    moment_ms = from_ms
    for _ in range(100_000):
        deadline_ms = side.timers.next_deadline(WALL_MS + moment_ms)
        if deadline_ms is None or deadline_ms > WALL_MS + now_ms:
            return
        moment_ms = max(moment_ms, deadline_ms - WALL_MS)
        side.timers.run_due(at(moment_ms), BUDGET)
        if is_flushed:
            side.store.flush()
    raise AssertionError("it is never done")


def delivered(side: ProduceSide) -> list[tuple[str, int]]:
    """Keys of what reached other topics, and when, in ms after the start."""
    return [
        (properties_of(message)["UNIQ_KEY"], result.store_timestamp - WALL_MS)
        for message, result in side.store.messages
        if message.topic != TIMER_TOPIC
    ]


def properties_of(message: PutMessage) -> dict[str, str]:
    return decode_properties(message.properties)

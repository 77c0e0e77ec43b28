"""One blocking request to any broker or name server, and the few admin calls tests need."""

from __future__ import annotations

import socket
import struct
import time

from support.processes.rig import ProcessFailed
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand, decode_frame, encode

Fields = dict[str, ExtValue]
REQUEST_S = 10.0
ROUTE_S = 10.0
# New routes and commits are not announced to a test, so it asks for them at this pace.
ASK_PERIOD_S = 0.05


def request(address: str, command: RemotingCommand, within_s: float = REQUEST_S) -> RemotingCommand:
    """Send one request on a connection of its own and return the answer."""
    host, port = address.rsplit(":", 1)
    with socket.create_connection((host, int(port)), within_s) as connection:
        connection.sendall(encode(command))
        return decode_frame(receive_frame(connection))


def receive_frame(connection: socket.socket) -> bytes:
    """One whole frame, length word included. Errors: ConnectionError at an early end."""
    prefix = _receive_exactly(connection, 4)
    (total,) = struct.unpack(">I", prefix)
    return prefix + _receive_exactly(connection, total)


def create_topic(broker: str, namesrv: str, topic: str, queues: int = 4) -> None:
    """Create `topic` on the broker and wait until the name server has its route.

    ali-ons never asks for the default topic's route, so it can only send to topics that exist.
    """
    put_topic(broker, topic, queues)
    wait_for_route(namesrv, topic)


def topic_command(topic: str, queues: int = 4) -> RemotingCommand:
    """Return the request of `updateTopic`."""
    fields: Fields = {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": False,
    }
    return RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, fields)


def put_topic(broker: str, topic: str, queues: int = 4) -> None:
    """Create or change `topic` on the broker."""
    answer = request(broker, topic_command(topic, queues))
    assert answer.code == ResponseCode.SUCCESS, f"{topic}: {answer.code} {answer.remark}"


def wait_for_route(namesrv: str, topic: str, within_s: float = ROUTE_S) -> bytes:
    """The route of `topic` as the name server tells it, once it exists."""
    deadline = time.monotonic() + within_s
    while True:
        answer = request(
            namesrv, RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
        )
        if answer.code == ResponseCode.SUCCESS:
            return answer.body_bytes()
        if time.monotonic() > deadline:
            raise ProcessFailed(f"no route for {topic}: {answer.code} {answer.remark}")
        time.sleep(ASK_PERIOD_S)


def wait_for_progress(broker: str, group: str, topic: str, queues: int, within_s: float) -> None:
    """Wait until the broker's record of the group's progress has reached the end of every queue."""
    deadline = time.monotonic() + within_s
    while True:
        behind = {
            queue_id: (
                consumer_offset(broker, group, topic, queue_id),
                max_offset(broker, topic, queue_id),
            )
            for queue_id in range(queues)
        }
        if all(committed == end for committed, end in behind.values()):
            return
        assert time.monotonic() < deadline, f"{group} on {topic}: (committed, end) is {behind}"
        time.sleep(ASK_PERIOD_S)


def consumer_offset(broker: str, group: str, topic: str, queue_id: int) -> int:
    fields: Fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
    answer = request(broker, RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, fields))
    return answer.ext_int("offset") if answer.code == ResponseCode.SUCCESS else -1


def max_offset(broker: str, topic: str, queue_id: int) -> int:
    fields: Fields = {"topic": topic, "queueId": queue_id}
    answer = request(broker, RemotingCommand(RequestCode.GET_MAX_OFFSET, fields))
    assert answer.code == ResponseCode.SUCCESS, f"{answer.code} {answer.remark}"
    return answer.ext_int("offset")


def _receive_exactly(connection: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = connection.recv(min(size, 1 << 20))
        if not part:
            raise ConnectionError(f"the peer closed with {size} bytes to come")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)

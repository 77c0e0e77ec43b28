"""One blocking connection to a broker, for what no load client tells: first sends and log ends."""

from __future__ import annotations

import json
import socket
import time
import uuid
from types import TracebackType
from typing import Self

from support.processes.admin import receive_frame

from trioha.client.message import Message, MessageQueue
from trioha.client.send_header import send_command
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import RemotingCommand, decode_frame, encode

# A send at a SYNC_MASTER is answered after slaveTimeout (3 s) at the latest.
ANSWER_S = 10.0
# Between attempts at a broker that is not there yet: finer than what it resolves.
KNOCK_PERIOD_S = 0.002
PROBE_TOPIC = "bench_probe"


class Probe:
    """Connects when made. Errors of every call: OSError when the broker is gone."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._connection = socket.create_connection((host, int(port)), ANSWER_S)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def request(self, command: RemotingCommand) -> RemotingCommand:
        self._connection.sendall(encode(command))
        return decode_frame(receive_frame(self._connection))

    def send(self, topic: str = PROBE_TOPIC) -> int:
        """Send one small message and return the answer's code; the topic need not exist."""
        message = Message(topic, b"probe")
        queue = MessageQueue(topic, "", 0)
        wall_ms = int(time.time() * 1000)
        unique_id = uuid.uuid4().hex.upper()
        return self.request(send_command("bench_probe", message, unique_id, queue, wall_ms)).code

    def timed_sends(self, topic: str, size: int, count: int) -> list[float]:
        """Milliseconds of each of `count` sends, one after the other, of a frame made before.

        Errors: AssertionError when the broker does not store one.
        """
        message, queue = Message(topic, bytes(size)), MessageQueue(topic, "", 0)
        frame = encode(send_command("bench", message, uuid.uuid4().hex.upper(), queue, 0))
        took_ms = []
        for _ in range(count):
            began_ns = time.perf_counter_ns()
            self._connection.sendall(frame)
            answer = receive_frame(self._connection)
            took_ms.append((time.perf_counter_ns() - began_ns) / 1e6)
            code = decode_frame(answer).code
            assert code == ResponseCode.SUCCESS, f"answer {code}"
        return took_ms

    def max_phy_offset(self) -> int:
        """Return the end of the log as the broker tells it; -1 while it cannot tell.

        A Java broker fails this request in its first second, before its statistics have a sample.
        """
        answer = self.request(RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO, {}))
        if answer.code != ResponseCode.SUCCESS:
            return -1
        return int(json.loads(answer.body_bytes())["table"]["commitLogMaxOffset"])

    def message_count(self, topic: str, queues: int) -> int:
        """Return the sum of the queues' max offsets: all messages since offset 0."""
        total = 0
        for queue_id in range(queues):
            command = RemotingCommand(
                RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": queue_id}
            )
            answer = self.request(command)
            assert answer.code == ResponseCode.SUCCESS, f"{answer.code} {answer.remark}"
            total += answer.ext_int("offset")
        return total


def wait_for_probe(address: str, within_s: float) -> Probe:
    """Knock until the broker's port answers. Errors: TimeoutError."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return Probe(address)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise TimeoutError(f"nobody listens on {address} after {within_s} s") from None
            time.sleep(KNOCK_PERIOD_S)


def wait_for_accepted_send(address: str, within_s: float) -> None:
    """Return as soon as the broker has stored a message of ours. Errors: TimeoutError."""
    deadline = time.monotonic() + within_s
    said = "no answer"
    while time.monotonic() < deadline:
        try:
            with wait_for_probe(address, deadline - time.monotonic()) as probe:
                while time.monotonic() < deadline:
                    code = probe.send()
                    if code == ResponseCode.SUCCESS:
                        return
                    said = f"answer {code}"
                    time.sleep(KNOCK_PERIOD_S)
        except ConnectionError as error:
            # A port may be open before the broker serves it.
            said = repr(error)
            time.sleep(KNOCK_PERIOD_S)
    raise TimeoutError(f"{address} stored nothing in {within_s} s: {said}")

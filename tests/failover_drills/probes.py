"""Asks every member, at all times, to store a message, to take a commit and to tell a commit.

A probe knows no route: to it a deposed master, or a second one, could acknowledge a message. Each
member has a thread with one connection. A round of requests is

* a send; and, if the member says that it is master, a commit of a number that only grows;
* the question how far the group has come in every queue.

Before and after each the probe asks for the member's status. The id in the answer to a send names
the member that stored the message: a member that forwards a send passes that id on.
"""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections.abc import Sequence
from typing import Any

import attrs
import msgpack
from support.histories.load import STORED
from support.histories.senders import Attempt, body_of
from support.processes.admin import receive_frame
from support.processes.rig import Node
from support.processes.worker import Worker

from trioha.client.message import Message, MessageQueue
from trioha.client.send_header import send_command
from trioha.wire.codes import RESPONSE_FLAG, RequestCode, ResponseCode
from trioha.wire.message_id import decode_message_id
from trioha.wire.remoting_command import ExtValue, RemotingCommand, decode_frame, encode

GROUP = "probes"
PAUSE_S = 0.02
CONNECT_S = 1.0
STATUSES = {
    int(ResponseCode.SUCCESS): "SEND_OK",
    int(ResponseCode.FLUSH_DISK_TIMEOUT): "FLUSH_DISK_TIMEOUT",
    int(ResponseCode.SLAVE_NOT_AVAILABLE): "SLAVE_NOT_AVAILABLE",
    int(ResponseCode.FLUSH_SLAVE_TIMEOUT): "FLUSH_SLAVE_TIMEOUT",
}
ANSWER_S = 10.0
"""Longer than a put waits for a slave, and than writes are parked."""


@attrs.frozen
class Asked(Attempt):
    """One send by a probe."""

    home_id: int = -1
    """The member that was asked."""
    stored_at: str = ""
    """Address of the member that stored the message; "" if none did."""
    epoch: int | None = None
    """The epoch in which the asked member was master, before and after; None otherwise."""


@attrs.frozen
class Commit:
    """One acknowledged commit that a slave holds, too."""

    queue_id: int
    offset: int
    ended_s: float


@attrs.frozen
class Told:
    """One answer to the question how far the group has come."""

    home_id: int
    queue_id: int
    offset: int
    began_s: float
    epoch: int | None
    """The same as in `Asked`: None unless the member was master."""


class Probes:
    """One probe for each member."""

    def __init__(self, nodes: Sequence[Node], topic: str, queues: int) -> None:
        self.commits: list[Commit] = []
        self.probes = [
            Probe(self, home_id, node.address, topic, queues) for home_id, node in enumerate(nodes)
        ]
        self._serials = itertools.count(1)

    @property
    def asked(self) -> list[Asked]:
        return [one for probe in self.probes for one in probe.asked]

    @property
    def told(self) -> list[Told]:
        return [one for probe in self.probes for one in probe.told]

    def next_serial(self) -> int:
        return next(self._serials)

    def start(self) -> Probes:
        for probe in self.probes:
            probe.start()
        return self

    def pause(self) -> None:
        """Ask nothing more; returns when every answer is there."""
        for probe in self.probes:
            probe.going.clear()
        for probe in self.probes:
            assert probe.idle.wait(ANSWER_S + 5.0), f"probe {probe.home_id} hangs"

    def resume(self) -> None:
        for probe in self.probes:
            probe.idle.clear()
            probe.going.set()

    def stop(self) -> None:
        """Errors: whatever ended a probe early."""
        for probe in self.probes:
            probe.stop()


class Probe(Worker):
    """One member's."""

    def __init__(self, owner: Probes, home_id: int, address: str, topic: str, queues: int) -> None:
        super().__init__(f"probe[{home_id}]", ANSWER_S + 5.0)
        self.home_id = home_id
        self.asked: list[Asked] = []
        self.told: list[Told] = []
        self.ok_count = 0
        self.going = threading.Event()
        self.going.set()
        self.idle = threading.Event()
        self._owner = owner
        self._address = address
        self._topic = topic
        self._queues = queues
        self._numbers = itertools.count()

    def ask_to_stop(self) -> None:
        super().ask_to_stop()
        self.going.set()

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                self._ask_until_closed()
            except OSError:
                self._rest()

    def _ended(self) -> None:
        self.idle.set()

    def _rest(self) -> None:
        """Wait a moment, and as long as the probes are paused."""
        if not self.going.is_set():
            self.idle.set()
            self.going.wait()
            self.idle.clear()
        self._stopping.wait(PAUSE_S)

    def _ask_until_closed(self) -> None:
        host, port = self._address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), CONNECT_S) as connection:
            connection.settimeout(ANSWER_S)
            while not self._stopping.is_set():
                if self.going.is_set():
                    self._ask_once(_Line(connection))
                self._rest()

    def _ask_once(self, line: _Line) -> None:
        """Errors: OSError when the member closes the connection, or does not answer."""
        epoch = line.epoch_as_master()
        self._send(line, epoch)
        if epoch is not None:
            self._commit(line, epoch)
        began_s = time.monotonic()
        answers = line.ask(*(self._query(queue_id) for queue_id in range(self._queues)))
        still = epoch if line.epoch_as_master() == epoch else None
        self.told += [
            Told(self.home_id, queue_id, answer.ext_int("offset"), began_s, still)
            for queue_id, answer in enumerate(answers)
            if answer.code == ResponseCode.SUCCESS
        ]

    def _send(self, line: _Line, epoch: int | None) -> None:
        number = next(self._numbers)
        name, queue_id = f"probe-{self.home_id}-{number}", number % self._queues
        command = send_command(
            GROUP,
            Message(self._topic, body_of(name)),
            name,
            MessageQueue(self._topic, "", queue_id),
            int(time.time() * 1000),
        )
        status, stored_at, queue_offset, still = "unknown", "", None, None
        began_s = ended_s = time.monotonic()
        try:
            (answer,) = line.ask(command)
            ended_s = time.monotonic()
            status = STATUSES.get(answer.code, "refused")
            if answer.code in STORED:
                host, port, _ = decode_message_id(answer.ext_str("msgId"))
                stored_at, queue_offset = f"{host}:{port}", answer.ext_int("queueOffset")
            still = epoch if line.epoch_as_master() == epoch else None
        finally:
            self.ok_count += status == "SEND_OK"
            self.asked.append(
                Asked(
                    *(name, began_s, max(ended_s, began_s), status, ""),
                    *(queue_offset, queue_id, self.home_id, stored_at, still),
                )
            )

    def _commit(self, line: _Line, epoch: int) -> None:
        serial = self._owner.next_serial()
        queue_id = serial % self._queues
        fields = {**self._key(queue_id), "commitOffset": serial}
        (answer,) = line.ask(RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, fields))
        ended_s = time.monotonic()
        # A remark says that no slave has confirmed it.
        is_safe = answer.code == ResponseCode.SUCCESS and not answer.remark
        if is_safe and line.epoch_as_master() == epoch:
            self._owner.commits.append(Commit(queue_id, serial, ended_s))

    def _query(self, queue_id: int) -> RemotingCommand:
        fields = {**self._key(queue_id), "setZeroIfNotFound": False}
        return RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, fields)

    def _key(self, queue_id: int) -> dict[str, ExtValue]:
        return {"consumerGroup": GROUP, "topic": self._topic, "queueId": queue_id}


class _Line:
    """A connection, and requests on it."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._opaques = itertools.count(1)

    def ask(self, *commands: RemotingCommand) -> list[RemotingCommand]:
        """Send all at once; the answers, in the order of the requests."""
        wanted = []
        for command in commands:
            command.opaque = next(self._opaques)
            wanted.append(command.opaque)
        self._connection.sendall(b"".join(encode(command) for command in commands))
        answers: dict[int, RemotingCommand] = {}
        while len(answers) < len(wanted):
            answer = decode_frame(receive_frame(self._connection))
            if answer.flag & RESPONSE_FLAG:
                answers[answer.opaque] = answer
        return [answers[opaque] for opaque in wanted]

    def epoch_as_master(self) -> int | None:
        """The epoch in which the member is master now; None if it is not."""
        (answer,) = self.ask(RemotingCommand(RequestCode.TRIOHA_NODE_STATUS))
        status: dict[str, Any] = msgpack.unpackb(answer.body_bytes())
        return int(status["epoch"]) if status["standing"] == "MASTER" else None

"""Clients that talk to one member for ever, whatever it is at the moment, and note what it said.

They know nothing of routes and try nothing again, so that every outcome is the member's own word: a
leader that was cut off and does not know it is still asked by them. Each runs in a thread.
"""

from __future__ import annotations

import random
import socket
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import attrs
import msgpack
from support.histories.judge import Commit, Look, Read, TopicChange
from support.histories.messages import Place, Put, make_body, name_of
from support.processes.admin import Fields, receive_frame
from support.processes.worker import Worker

from trioha.client.message import Message, MessageQueue
from trioha.client.send_header import send_command
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.message_id import decode_message_id
from trioha.wire.record import decode_records
from trioha.wire.remoting_command import RemotingCommand, decode_frame, encode

CONNECT_S = 1.0
ANSWER_S = 4.0
"""Longer than a leader waits for its majority: its own word is wanted, not our impatience."""
REFUSED_PAUSE_S = 0.02
JOIN_S = 20.0
RECENT = 4000
"""Puts to look through for one of the last seconds."""
GROUP = "drill"
TOPICS_KEPT = 5
REFUSALS = {
    ResponseCode.SERVICE_NOT_AVAILABLE,
    ResponseCode.SYSTEM_BUSY,
    ResponseCode.NO_PERMISSION,
    ResponseCode.TOPIC_NOT_EXIST,
}
UNKNOWN = "outcome unknown"


class MemberClient(Worker):
    """A thread and one connection to a member, made again as often as it breaks."""

    def __init__(self, member: str, address: str, kind: str, patience_s: float = ANSWER_S) -> None:
        self.name = f"{kind}-{member}"
        super().__init__(self.name, JOIN_S)
        self.member = member
        self._patience_s = patience_s
        host, port = address.rsplit(":", 1)
        self._address = host, int(port)
        self._opaque = 0

    def _work(self) -> None:
        while not self._stopping.is_set():
            try:
                with socket.create_connection(self._address, CONNECT_S) as connection:
                    connection.settimeout(self._patience_s)
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    while not self._stopping.is_set():
                        self._talk(connection)
            except OSError as error:
                self._lost(str(error) or type(error).__name__)
                self._stopping.wait(REFUSED_PAUSE_S)

    def _talk(self, connection: socket.socket) -> None:
        """One exchange, or a few. Errors: OSError ends the connection."""
        raise NotImplementedError

    def _lost(self, reason: str) -> None:
        """The connection broke."""

    def _send(self, connection: socket.socket, command: RemotingCommand) -> int:
        self._opaque += 1
        command.opaque = self._opaque
        connection.sendall(encode(command))
        return self._opaque

    def _ask(self, connection: socket.socket, command: RemotingCommand) -> RemotingCommand:
        self._send(connection, command)
        return decode_frame(receive_frame(connection))


@attrs.frozen
class Mix:
    """Messages and pace of a sender."""

    queues: int = 4
    window: int = 4
    """Requests under way at once."""
    pace_s: float = 0.008
    """Rest after each window."""
    body_bytes_max: int = 300
    large_chance: float = 0.02
    large_bytes_max: int = 40_000
    patience_s: float = ANSWER_S


class MemberSender(MemberClient):
    """Puts, a few at a time. What it notes is a `Put` each."""

    def __init__(
        self, member: str, address: str, topic: str, *, seed: int, mix: Mix, label: str = "put"
    ) -> None:
        super().__init__(member, address, label, mix.patience_s)
        self.puts: list[Put] = []
        self.strange: Counter[str] = Counter()
        """Answers that this mode must not give."""
        self.acknowledged = 0
        self._topic = topic
        self._mix = mix
        self._rng = random.Random(f"{seed}:{self.name}")
        self._number = 0
        self._pending: dict[int, Put] = {}

    def first_acknowledged_after(self, moment_s: float) -> float | None:
        """Return when a put that began after that moment was first acknowledged."""
        return min(
            (
                put.ended_s
                for put in self.puts[-RECENT:]
                if put.outcome == "acknowledged" and put.began_s >= moment_s
            ),
            default=None,
        )

    def acknowledged_ends(self) -> list[float]:
        return [put.ended_s for put in list(self.puts) if put.outcome == "acknowledged"]

    def _talk(self, connection: socket.socket) -> None:
        refused = 0
        for _ in range(self._mix.window):
            self._put(connection)
        while self._pending:
            answer = decode_frame(receive_frame(connection))
            refused += self._take(answer)
        self._stopping.wait(REFUSED_PAUSE_S if refused else self._mix.pace_s)

    def _lost(self, reason: str) -> None:
        self.puts += [attrs.evolve(put, detail=reason) for put in self._pending.values()]
        self._pending.clear()

    def _put(self, connection: socket.socket) -> None:
        mix, rng = self._mix, self._rng
        name = f"{self.name}-{self._number}"
        self._number += 1
        large = rng.random() < mix.large_chance
        size = rng.randint(0, mix.large_bytes_max if large else mix.body_bytes_max)
        queue = MessageQueue(self._topic, "", rng.randrange(mix.queues))
        message = Message(self._topic, make_body(name, size))
        command = send_command(GROUP, message, name, queue, int(time.time() * 1000))
        # Before it can have left us.
        self._pending[self._opaque + 1] = Put(name=name, client=self.name, began_s=time.monotonic())
        self._send(connection, command)

    def _take(self, answer: RemotingCommand) -> bool:
        put = self._pending.pop(answer.opaque)
        remark = answer.remark or ""
        outcome, place, refused = "unknown", None, False
        if answer.code == ResponseCode.SUCCESS:
            outcome = "acknowledged"
            phy_offset = decode_message_id(answer.ext_str("msgId"))[2]
            place = Place(answer.ext_int("queueId"), answer.ext_int("queueOffset"), phy_offset)
            self.acknowledged += 1
        elif answer.code in REFUSALS:
            outcome, refused = "refused", True
        elif UNKNOWN not in remark:
            self.strange[f"{answer.code} {remark[:80]}"] += 1
        self.puts.append(
            attrs.evolve(
                put,
                # A put of unknown outcome has no known end.
                ended_s=put.ended_s if outcome == "unknown" else time.monotonic(),
                outcome=outcome,
                place=place,
                detail=f"{answer.code} {remark[:120]}",
            )
        )
        return refused


class MemberReader(MemberClient):
    """Pulls every queue from its beginning, one message after the other."""

    def __init__(self, member: str, address: str, topic: str, queues: int) -> None:
        super().__init__(member, address, "read")
        self.reads: list[Read] = []
        self.moved: list[str] = []
        """Answers that send a reader elsewhere: it had read only what was committed."""
        self.offsets = dict.fromkeys(range(queues), 0)
        self._topic = topic

    def _talk(self, connection: socket.socket) -> None:
        found = [self._pull(connection, queue_id) for queue_id in self.offsets]
        if not any(found):
            self._stopping.wait(0.05)

    def _pull(self, connection: socket.socket, queue_id: int) -> bool:
        offset = self.offsets[queue_id]
        fields: Fields = {
            "consumerGroup": f"{GROUP}-readers",
            "topic": self._topic,
            "queueId": queue_id,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subscription": "*",
            "subVersion": 0,
        }
        answer = self._ask(connection, RemotingCommand(RequestCode.PULL_MESSAGE, fields))
        if answer.code == ResponseCode.PULL_OFFSET_MOVED:
            self.moved.append(f"{self.name} queue {queue_id} at {offset}: {answer.ext_fields}")
        if answer.code != ResponseCode.SUCCESS:
            return False
        at_s = time.monotonic()
        for record in decode_records(answer.body_bytes()):
            self.reads.append(
                Read(
                    client=self.name,
                    queue_id=queue_id,
                    queue_offset=record.queue_offset,
                    name=name_of(bytes(record.body)),
                    at_s=at_s,
                )
            )
        self.offsets[queue_id] = answer.ext_int("nextBeginOffset")
        return True


class LeaderClient(MemberClient):
    """One that changes something while its member leads.

    Only what was answered between two statuses of one leadership is a leader's word.
    """

    def _leading(self, connection: socket.socket) -> int:
        """The term in which the member leads and serves; 0 if it does not."""
        answer = self._ask(connection, RemotingCommand(RequestCode.TRIOHA_NODE_STATUS))
        if answer.code != ResponseCode.SUCCESS:
            return 0
        status: dict[str, Any] = msgpack.unpackb(answer.body_bytes())
        raft = status.get("raft") or {}
        return int(raft["term"]) if raft.get("is_serving") else 0


class ProgressKeeper(LeaderClient):
    """Commits ever more under a key of its own while its member leads, and looks at all keys.

    It looks whatever the member is: no member may answer an older value than was known before.
    """

    def __init__(
        self, member: str, address: str, topic: str, keys: Sequence[str], period_s: float = 0.1
    ) -> None:
        super().__init__(member, address, "keep")
        self.commits: list[Commit] = []
        self.looks: list[Look] = []
        self._topic = topic
        self._keys = keys
        self._value = 0
        self._period_s = period_s

    def _talk(self, connection: socket.socket) -> None:
        self._stopping.wait(self._period_s)
        term = self._leading(connection)
        if term:
            self._commit(connection, term)
        for key in self._keys:
            self._look(connection, key)

    def _commit(self, connection: socket.socket, term: int) -> None:
        self._value += 1
        key = self.member
        commit = Commit(key=key, value=self._value, began_s=time.monotonic())
        fields = self._fields(key) | {"commitOffset": self._value}
        done = False
        try:
            answer = self._ask(
                connection, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
            )
            ended_s = time.monotonic()
            # "done, but ..." is no promise.
            told = answer.code == ResponseCode.SUCCESS and not answer.remark
            done = told and self._leading(connection) == term
        finally:
            self.commits.append(
                attrs.evolve(commit, ended_s=ended_s, acknowledged=True) if done else commit
            )

    def _look(self, connection: socket.socket, key: str) -> None:
        began_s = time.monotonic()
        fields = self._fields(key) | {"setZeroIfNotFound": False}
        answer = self._ask(connection, RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, fields))
        ended_s = time.monotonic()
        if answer.code == ResponseCode.SUCCESS:
            value = answer.ext_int("offset")
        elif answer.code == ResponseCode.QUERY_NOT_FOUND:
            value = -1
        else:
            return
        self.looks.append(
            Look(key=key, value=value, began_s=began_s, ended_s=ended_s, member=self.member)
        )

    def _fields(self, key: str) -> Fields:
        return {"consumerGroup": f"keeper-{key}", "topic": self._topic, "queueId": 0}


class TopicKeeper(LeaderClient):
    """Makes topics, and deletes each some time later."""

    def __init__(self, member: str, address: str, period_s: float = 0.15) -> None:
        super().__init__(member, address, "made")
        self.changes: list[TopicChange] = []
        self._period_s = period_s
        self._number = 0

    def _talk(self, connection: socket.socket) -> None:
        self._stopping.wait(self._period_s)
        term = self._leading(connection)
        if not term:
            return
        self._number += 1
        made: Fields = {
            "topic": self._topic_of(self._number),
            "defaultTopic": "TBW102",
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "perm": 6,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": 0,
            "order": False,
        }
        self._change(connection, term, True, RequestCode.UPDATE_AND_CREATE_TOPIC, made)
        if self._number > TOPICS_KEPT:
            gone: Fields = {"topic": self._topic_of(self._number - TOPICS_KEPT)}
            self._change(connection, term, False, RequestCode.DELETE_TOPIC_IN_BROKER, gone)

    def _topic_of(self, number: int) -> str:
        return f"{self.name}-{number}"

    def _change(
        self, connection: socket.socket, term: int, made: bool, code: RequestCode, fields: Fields
    ) -> None:
        change = TopicChange(topic=str(fields["topic"]), made=made)
        done = False
        try:
            answer = self._ask(connection, RemotingCommand(code, fields))
            told = answer.code == ResponseCode.SUCCESS and not answer.remark
            done = told and self._leading(connection) == term
        finally:
            self.changes.append(attrs.evolve(change, acknowledged=done))

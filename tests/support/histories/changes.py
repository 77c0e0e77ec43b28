"""Offset commits and new topics, many under way at a time, and what was answered to each."""

from __future__ import annotations

import contextlib
import random
import socket
import threading

import attrs

from support.processes.admin import receive_frame, request
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.remoting_command import ExtValue, RemotingCommand, decode_frame, encode

PATIENCE_S = 60.0
QUEUES = 4
GROUPS = ("readers", "writers")
Progress = tuple[str, int]  # group, queue id
Change = tuple[Progress, int] | str


@attrs.define(eq=False)
class Changes:
    """One connection that changes metadata as fast as it is answered; progress only grows."""

    address: str
    topic: str
    seed: int
    first_offset: int = 1
    window: int = 16
    topic_chance: float = 0.03
    stops_at_refusal: bool = False
    sent: dict[Progress, int] = attrs.Factory(dict)
    acknowledged: dict[Progress, int] = attrs.Factory(dict)
    topics: list[str] = attrs.Factory(list)
    """Acknowledged ones."""
    remarks: set[str] = attrs.Factory(set)
    """Remarks of SUCCESS answers."""
    answered: int = 0
    _changed: threading.Condition = attrs.Factory(threading.Condition)
    _stopping: bool = False
    _failure: str = ""
    _thread: threading.Thread | None = None

    def start(self) -> Changes:
        self._thread = threading.Thread(target=self._run, name="changes", daemon=True)
        self._thread.start()
        return self

    def wait_for_answers(self, count: int) -> None:
        with self._changed:
            done = self._changed.wait_for(
                lambda: self.answered >= count or self._failure, PATIENCE_S
            )
        assert done, f"{self.answered} answers in {PATIENCE_S} s"
        assert not self._failure, self._failure

    def stop(self) -> None:
        """End it, or wait for its end when its broker is gone."""
        self._stopping = True
        assert self._thread is not None
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        assert not self._failure, self._failure

    def check(self, address: str) -> None:
        """Check that the broker has all that was acknowledged, and no offset that was not sent."""
        assert not (missing := self.missing_on(address)), missing

    def missing_on(self, address: str) -> str:
        """Return what the broker lacks, or has beyond what was sent; "" for nothing."""
        for (group, queue_id), offset in self.acknowledged.items():
            found = committed(address, group, self.topic, queue_id)
            latest = self.sent[group, queue_id]
            if not offset <= found <= latest:
                return (
                    f"{group} in queue {queue_id}: {found} on {address}; "
                    f"acknowledged {offset}, sent {latest}"
                )
        for topic in self.topics:
            answer = request(
                address, RemotingCommand(RequestCode.GET_TOPIC_CONFIG, {"topic": topic})
            )
            if answer.code != ResponseCode.SUCCESS:
                return f"{topic} is not on {address}"
        return ""

    def _run(self) -> None:
        host, port = self.address.rsplit(":", 1)
        waiting: dict[int, Change] = {}
        # The broker dying under us is what most tests are about.
        with (
            contextlib.suppress(ConnectionError),
            socket.create_connection((host, int(port)), PATIENCE_S) as connection,
        ):
            rng = random.Random(self.seed)
            number = self.first_offset
            while not self._stopping:
                batch = b""
                while len(waiting) < self.window:
                    number += 1
                    batch += self._next(rng, number, waiting)
                connection.sendall(batch)
                for _ in range(rng.randint(1, self.window)):
                    self._take(decode_frame(receive_frame(connection)), waiting)

            while waiting:
                self._take(decode_frame(receive_frame(connection)), waiting)
        with self._changed:
            self._changed.notify_all()

    def _next(self, rng: random.Random, number: int, waiting: dict[int, Change]) -> bytes:
        if rng.random() < self.topic_chance:
            name = f"{self.topic}-{number}"
            waiting[number] = name
            fields: dict[str, ExtValue] = {
                "topic": name,
                "readQueueNums": 1,
                "writeQueueNums": 1,
                "perm": 6,
            }
            return encode(
                RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, fields, opaque=number)
            )
        progress = (rng.choice(GROUPS), rng.randrange(QUEUES))
        self.sent[progress] = number
        waiting[number] = progress, number
        command = commit_command(progress[0], self.topic, progress[1], number)
        command.opaque = number
        return encode(command)

    def _take(self, answer: RemotingCommand, waiting: dict[int, Change]) -> None:
        change = waiting.pop(answer.opaque)
        with self._changed:
            self.answered += 1
            self._changed.notify_all()
            if answer.code != ResponseCode.SUCCESS:
                if not self.stops_at_refusal:
                    self._failure = f"{change}: {answer.code} {answer.remark}"
                self._stopping = True
            elif answer.remark:
                self.remarks.add(answer.remark)
            elif isinstance(change, str):
                self.topics.append(change)
            else:
                # Requests that a node passes on may be answered out of order.
                before = self.acknowledged.get(change[0], 0)
                self.acknowledged[change[0]] = max(before, change[1])


def commit_command(group: str, topic: str, queue_id: int, offset: int) -> RemotingCommand:
    return RemotingCommand(
        RequestCode.UPDATE_CONSUMER_OFFSET,
        {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset},
    )


def committed(address: str, group: str, topic: str, queue_id: int) -> int:
    """Return a group's committed offset in a queue at a broker; -1 for none."""
    answer = request(
        address,
        RemotingCommand(
            RequestCode.QUERY_CONSUMER_OFFSET,
            {
                "consumerGroup": group,
                "topic": topic,
                "queueId": queue_id,
                "setZeroIfNotFound": False,
            },
        ),
    )
    return answer.ext_int("offset") if answer.code == ResponseCode.SUCCESS else -1

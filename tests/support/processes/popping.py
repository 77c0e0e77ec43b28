"""A group's client that pops from a broker of either make, and tells what it saw.

It knows what the broker says only: codes, messages, and the fields from which a client makes its
receipt handles. Times that differ from run to run are left out of what it tells.
"""

from __future__ import annotations

import base64
import json
import socket
import time
from collections.abc import Mapping, Sequence
from typing import Self

import attrs

from support.handlers.popping import Popped
from support.handlers.sending import send_v2
from support.processes.admin import max_offset, receive_frame, request, topic_command
from support.processes.status import wait_until
from trioha.broker.pop.handles import retry_mark, topic_of_mark
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.properties import encode_properties
from trioha.wire.record import decode_records
from trioha.wire.remoting_command import ExtValue, RemotingCommand, decode_frame, encode

LONG_MS = 600_000
"""An invisible time that is over after the test."""
_ANSWER_S = 60.0
_AGAIN_POLL_MS = 500
"""RocketMQ's broker does not wake a parked pop for a message that it delivers again."""


@attrs.frozen
class Waiting:
    """A request on a connection of its own, until its answer comes."""

    connection: socket.socket

    @classmethod
    def send(cls, address: str, command: RemotingCommand) -> Self:
        host, port = address.rsplit(":", 1)
        connection = socket.create_connection((host, int(port)), _ANSWER_S)
        connection.sendall(encode(command))
        return cls(connection)

    def next_answer(self) -> RemotingCommand:
        """Return the answer; a broker may send requests of its own first."""
        while not (answer := decode_frame(receive_frame(self.connection))).is_response:
            pass
        return answer

    def answer(self) -> RemotingCommand:
        """Return the answer and close the connection."""
        with self.connection:
            return self.next_answer()


@attrs.define(eq=False)
class PopClient:
    """The client of one group and topic. `told` has one entry for each step."""

    address: str
    topic: str
    group: str
    told: dict[str, object] = attrs.Factory(dict)
    late_ms: list[int] = attrs.Factory(list)
    """Time between the due time of each message and its store time in the retry topic."""

    # Requests.

    def tell(self, step: str, seen: object) -> None:
        assert step not in self.told, f"two steps are called {step!r}"
        self.told[step] = seen

    def tell_all(self, step: str, seen: Mapping[str, object]) -> None:
        """Tell several things of one step, each to be compared by itself."""
        for name, value in seen.items():
            self.tell(f"{step}: {name}", value)

    def ask(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> RemotingCommand:
        return self.start(code, fields, body).answer()

    def start(self, code: int, fields: Mapping[str, object], body: bytes = b"") -> Waiting:
        """Send a request whose answer may wait."""
        return Waiting.send(self.address, _command(code, fields, body))

    def create(self, *, queues: int = 1, perm: int = 6, **group: object) -> None:
        """Create the topic and the group."""
        command = topic_command(self.topic, queues)
        command.ext_fields["perm"] = perm
        assert request(self.address, command).code == ResponseCode.SUCCESS
        self.create_group(self.group, **group)

    def create_group(self, name: str, **fields: object) -> None:
        body = json.dumps({"groupName": name, **fields}).encode()
        answer = self.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def send(self, *bodies: str, queue: int = 0, tags: str = "", **properties: str) -> None:
        """Send messages to one queue, and wait until its readers see them."""
        end = max_offset(self.address, self.topic, queue) + len(bodies)
        given = ({"TAGS": tags} if tags else {}) | properties
        for body in bodies:
            text = encode_properties(given).decode()
            born = str(int(time.time() * 1000))
            command = send_v2(self.topic, body.encode(), text, e=str(queue), g=born)
            assert request(self.address, command).code == ResponseCode.SUCCESS
        wait_until(
            "readable", lambda: max_offset(self.address, self.topic, queue) == end, _ANSWER_S
        )

    # Pops.

    def start_pop(self, **fields: object) -> Waiting:
        """Send a pop whose answer may wait."""
        return self.start(RequestCode.POP_MESSAGE, self.pop_fields(fields))

    def pop(self, step: str, **fields: object) -> list[Popped]:
        """Pop, and tell the answer."""
        return self.told_pop(step, self.start_pop(**fields))

    def pop_left(self, step: str, **fields: object) -> list[Popped]:
        """Pop until messages come, and tell that answer.

        Java's broker may hold the lock of the last pop still. Then it answers with nothing.
        """
        deadline = time.monotonic() + _ANSWER_S
        while True:
            answer = self.start_pop(**{"pollTime": _AGAIN_POLL_MS, **fields}).answer()
            messages = self.popped(answer)
            if messages or time.monotonic() >= deadline:
                self.tell_all(step, seen_of(answer, messages))
                return messages

    def told_pop(self, step: str, waiting: Waiting) -> list[Popped]:
        """Tell the answer of a pop that waited."""
        answer = waiting.answer()
        messages = self.popped(answer)
        self.tell_all(step, seen_of(answer, messages))
        return messages

    def pop_again(self, step: str, *first: Popped, **fields: object) -> list[Popped]:
        """Pop until as many messages have come as `first` has, which were not acknowledged."""
        found: list[Popped] = []
        deadline = time.monotonic() + _ANSWER_S
        while len(found) < len(first):
            assert time.monotonic() < deadline, f"{step}: only {found} came"
            left = {"maxMsgNums": len(first) - len(found), "pollTime": _AGAIN_POLL_MS}
            found += self.popped(self.start_pop(**{**left, **fields}).answer())
        self.tell(step, [_words(message) for message in found])
        due = {message.body: sum(map(int, message.handle.split(" ")[1:3])) for message in first}
        self.late_ms += [m.record.store_timestamp - due[m.body] for m in found if m.body in due]
        return found

    def pop_fields(self, fields: Mapping[str, object]) -> dict[str, object]:
        return {
            "consumerGroup": self.group,
            "topic": self.topic,
            "queueId": 0,
            "maxMsgNums": 32,
            "invisibleTime": LONG_MS,
            "pollTime": 0,
            # Neither broker gives the request up, however late it comes to it.
            "bornTime": 0,
            "initMode": 0,
            **fields,
        }

    def peek(self, step: str, **fields: object) -> None:
        answer = self.ask(RequestCode.PEEK_MESSAGE, self.pop_fields(fields))
        self.tell(f"{step}: code", answer.code)
        if answer.code in (0, ResponseCode.PULL_NOT_FOUND):
            bodies = [record.body.decode() for record in decode_records(answer.body_bytes())]
            self.tell(f"{step}: messages", sorted(bodies))
            self.tell(f"{step}: left", answer.ext_int("restNum"))

    def popped(self, answer: RemotingCommand) -> list[Popped]:
        """Return the messages of an answer with their handles, as the Java client makes them."""
        if answer.code:
            return []
        starts = by_queue(answer.ext_str("startOffsetInfo"))
        offsets = by_queue(answer.ext_str("msgOffsetInfo"))
        times = [answer.ext_str(name) for name in ("popTime", "invisibleTime", "reviveQid")]
        found = []
        for record in decode_records(answer.body_bytes()):
            queue, offset = str(record.queue_id), str(record.queue_offset)
            handle = record.properties.get("POP_CK")
            if handle is None:
                mark = retry_mark(record.topic)
                assert offset in offsets[f"{mark}/{queue}"].split(",")
                handle = " ".join(
                    [starts[f"{mark}/{queue}"], *times, mark, "broker-a", queue, offset]
                )
            found.append(Popped(record, handle))
        return found

    # Acknowledgements.

    def naming(self, message: Popped) -> dict[str, object]:
        """Return the fields by which a request names one message."""
        handle = message.handle.split(" ")
        return {
            "consumerGroup": self.group,
            "topic": topic_of_mark(self.topic, self.group, handle[4]),
            "queueId": handle[6],
            "offset": handle[7],
            "extraInfo": message.handle,
        }

    def ack(self, step: str, message: Popped, **fields: object) -> None:
        answer = self.ask(RequestCode.ACK_MESSAGE, {**self.naming(message), **fields})
        self.tell(step, answer.code)

    def batch_ack(self, step: str, *messages: Popped, **fields: object) -> None:
        """Acknowledge messages of any checkpoints in one request."""
        acks = [self.batch_entry(message, **fields) for message in messages]
        self.tell(step, self.ask_batch({"brokerName": "broker-a", "acks": acks}).code)

    def ask_batch(self, body: object) -> RemotingCommand:
        return self.ask(RequestCode.BATCH_ACK_MESSAGE, {}, json.dumps(body).encode())

    def batch_entry(self, message: Popped, **fields: object) -> dict[str, object]:
        start, pop_time, invisible, revive, mark, _, queue, offset = message.handle.split(" ")
        bit = int(offset) - int(start)
        return {
            "c": self.group,
            "t": self.topic,
            "r": mark,
            "so": int(start),
            "q": int(queue),
            "rq": int(revive),
            "pt": int(pop_time),
            "it": int(invisible),
            "b": base64.b64encode((1 << bit).to_bytes(bit // 8 + 1, "little")).decode(),
            **fields,
        }

    def hide(self, step: str, message: Popped, invisible_ms: int, **fields: object) -> Popped:
        """Change the invisible time; return the message with its new handle."""
        answer = self.ask(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            {**self.naming(message), "invisibleTime": invisible_ms, **fields},
        )
        if answer.code:
            self.tell(step, answer.code)
            return message
        handle = message.handle.split(" ")
        is_ordered = handle[3] == "999"
        if not is_ordered:
            handle[0] = handle[7]
        before_ms = int(handle[1])
        handle[1:4] = (answer.ext_str(name) for name in ("popTime", "invisibleTime", "reviveQid"))
        later = int(handle[1]) > before_ms
        # An ordered batch keeps its pop time: the answer counts from there.
        self.tell(step, [0, handle[3], later, None if is_ordered else handle[2]])
        return attrs.evolve(message, handle=" ".join(handle))


def seen_of(answer: RemotingCommand, messages: Sequence[Popped]) -> dict[str, object]:
    """Return what a pop brought, without times; queues come in any order."""
    if answer.code not in (0, ResponseCode.POLLING_TIMEOUT, ResponseCode.PULL_NOT_FOUND):
        return {"code": answer.code}
    seen: dict[str, object] = {"code": answer.code, "left": answer.ext_int("restNum")}
    if not messages:
        return seen
    seen["status"] = answer.remark
    seen["invisible"] = answer.ext_int("invisibleTime")
    seen["revive queue"] = answer.ext_int("reviveQid")
    places: dict[str, list[str]] = {}
    for message in messages:
        mark, _, queue = message.handle.split(" ")[4:7]
        places.setdefault(f"{mark}/{queue}", []).append(_words(message))
    seen["messages"] = dict(sorted(places.items()))
    offsets = by_queue(answer.ext_str("msgOffsetInfo"))
    seen["offsets"] = dict(sorted(offsets.items()))
    # A handle counts from there; a filter may have left out what is before the first message.
    seen["starts before"] = {
        place: int(start) <= int(offsets[place].partition(",")[0])
        for place, start in sorted(by_queue(answer.ext_str("startOffsetInfo")).items())
    }
    if counts := answer.ext_str("orderCountInfo", ""):
        seen["counts"] = dict(sorted(by_queue(counts).items()))
    return seen


def by_queue(text: str) -> dict[str, str]:
    """Read startOffsetInfo, msgOffsetInfo or orderCountInfo, by retry mark and queue."""
    found = {}
    for part in text.split(";"):
        mark, queue, rest = part.split(" ")
        assert f"{mark}/{queue}" not in found, text
        found[f"{mark}/{queue}"] = rest
    return found


def _words(message: Popped) -> str:
    record = message.record
    mark = message.handle.split(" ")[4]
    place = f"{mark}/{record.queue_id}@{record.queue_offset}"
    return f"{message.body} {place} after {record.reconsume_times}"


def _command(code: int, fields: Mapping[str, object], body: bytes = b"") -> RemotingCommand:
    texts: dict[str, ExtValue] = {name: str(value) for name, value in fields.items()}
    return RemotingCommand(code, texts, body, opaque=9)

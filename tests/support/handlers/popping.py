"""A broker's core on a MemoryStore, and clients that pop from it. Topic T has four queues."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import attrs

from support.handlers.sending import BORN_HOST, STORE_HOST, FakeChannel, FakeReplicas, at
from support.memory.store import MemoryStore
from trioha.broker.core import BrokerCore
from trioha.broker.pop.assignment import AskRoute, no_route
from trioha.config import BrokerConfig
from trioha.errors import CommandError, RemoteProtocolError
from trioha.remoting.channel import Instant
from trioha.store.interface import PutMessage
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.bodies import TopicConfig
from trioha.wire.codes import RequestCode, ResponseCode
from trioha.wire.java_hash import string_hash
from trioha.wire.properties import encode_properties
from trioha.wire.record import Record, decode_records
from trioha.wire.remoting_command import RemotingCommand

TOPIC, GROUP = "T", "g"
RETRY = "%RETRY%g_T"
INVISIBLE_MS = 60_000


@attrs.frozen
class Popped:
    """One message as a client received it, and its receipt handle."""

    record: Record
    handle: str

    @property
    def body(self) -> str:
        return self.record.body.decode()


class PopSide:
    """A master with clients."""

    def __init__(
        self,
        config: BrokerConfig | None = None,
        *,
        store: MemoryStore | None = None,
        by_quorum: bool = False,
        queues: int = 4,
        ask_route: AskRoute = no_route,
    ) -> None:
        self.config = (
            attrs.evolve(BrokerConfig(), broker_ip1="127.0.0.1", enable_property_filter=True)
            if config is None
            else config
        )
        self.store = MemoryStore() if store is None else store
        self.events = RecordedEvents()
        self.replicas = FakeReplicas(by_quorum=by_quorum)
        self.core = BrokerCore(
            self.config,
            self.store,
            self.replicas,
            self.events,
            Random(7),
            at(),
            lambda _: {},
            ask_route=ask_route,
        )
        self.store.tell_dispatches(self.core.on_dispatch)
        self.core.topics.put(
            TopicConfig(TOPIC, read_queue_nums=queues, write_queue_nums=queues), at().wall_ms
        )
        self.channel = FakeChannel()
        self.now_ms = 0

    @property
    def instant(self) -> Instant:
        return at(self.now_ms)

    def put(
        self, body: str, queue_id: int = 0, *, topic: str = TOPIC, tags: str = "", **more: str
    ) -> None:
        """Store a producer's message."""
        properties = ({"TAGS": tags} if tags else {}) | more
        message = PutMessage(
            topic=topic,
            queue_id=queue_id,
            flag=0,
            sys_flag=0,
            born_timestamp=at(self.now_ms).wall_ms,
            born_host=BORN_HOST,
            store_host=STORE_HOST,
            body=body.encode(),
            properties=encode_properties(properties),
            tags_code=string_hash(tags) if tags else 0,
        )
        outcome = self.core.pipeline.put(message, wait=False, instant=at(self.now_ms))
        assert outcome.is_stored

    def ask(
        self, code: int, fields: dict[str, object], body: bytes = b""
    ) -> RemotingCommand | None:
        """Send a request; its answer, or None while it waits."""
        request = RemotingCommand(
            code, {name: str(value) for name, value in fields.items()}, body, opaque=9
        )
        try:
            return self.core.handlers[code](self.channel, request, at(self.now_ms))
        except CommandError as error:
            return request.response(error.code, error.remark)
        except RemoteProtocolError as error:
            return request.response(ResponseCode.SYSTEM_ERROR, str(error))

    def ask_pop(self, **fields: object) -> RemotingCommand | None:
        return self.ask(
            RequestCode.POP_MESSAGE,
            {
                "consumerGroup": GROUP,
                "topic": TOPIC,
                "queueId": -1,
                "maxMsgNums": 32,
                "invisibleTime": INVISIBLE_MS,
                "pollTime": 0,
                "bornTime": at(self.now_ms).wall_ms,
                "initMode": 0,
                **fields,
            },
        )

    def pop(self, **fields: object) -> list[Popped]:
        """Pop at once: messages, none if there are none."""
        response = self.ask_pop(**fields)
        assert response is not None
        return popped(response)

    def ack(self, message: Popped, **fields: object) -> int:
        """Acknowledge; the code of the answer."""
        return self.code_of(RequestCode.ACK_MESSAGE, message, fields)

    def hide(self, message: Popped, invisible_ms: int, **fields: object) -> Popped:
        """Change the invisible time; the message with its new handle."""
        response = self.ask(
            RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
            {**self.naming(message), "invisibleTime": invisible_ms, **fields},
        )
        assert response is not None
        assert response.code == 0, response.remark
        handle = message.handle.split(" ")
        record = message.record
        if handle[3] != "999":
            handle[0] = str(record.queue_offset)
        handle[1] = response.ext_str("popTime")
        handle[2] = response.ext_str("invisibleTime")
        return attrs.evolve(message, handle=" ".join(handle))

    def code_of(self, code: int, message: Popped, fields: dict[str, object]) -> int:
        response = self.ask(code, {**self.naming(message), **fields})
        assert response is not None
        return response.code

    def naming(self, message: Popped) -> dict[str, object]:
        """Fields that name a message in a request."""
        record = message.record
        return {
            "consumerGroup": GROUP,
            "topic": record.topic,
            "queueId": record.queue_id,
            "offset": record.queue_offset,
            "extraInfo": message.handle,
        }

    def wait(self, elapsed_ms: int, *, safe: bool = True) -> None:
        """Let time go by; what is due on the way is done when it is due, and on disk if `safe`."""
        until_ms = self.now_ms + elapsed_ms
        while (due_ms := self.core.deliveries.next_deadline(at(self.now_ms).wall_ms)) is not None:
            due_in_ms = due_ms - at(self.now_ms).wall_ms
            if self.now_ms + due_in_ms > until_ms:
                break
            self.now_ms += max(0, due_in_ms)
            self.core.deliveries.run_due(at(self.now_ms))
            if safe:
                self.make_safe()
        self.now_ms = until_ms
        self.core.expire_pulls(at(self.now_ms))

    def read(self) -> int:
        """Read what waits for the disk; return how many pops that were."""
        reads = self.core.cold_reads.take(self.now_ms, 0)
        self.core.cold_reads.were_read(reads)
        self.core.after_batch(at(self.now_ms))
        return len(reads)

    def make_safe(self) -> None:
        """Bring the log to disk, and tell so."""
        self.core.on_flushed(self.store.flush(), self.now_ms)

    def answers(self) -> list[RemotingCommand]:
        """Take the answers that came later."""
        sent, self.channel.sent = self.channel.sent, []
        return sent

    def committed(self, queue_id: int = 0, topic: str = TOPIC) -> int:
        return self.core.offsets.query(GROUP, topic, queue_id)

    def bodies(self, topic: str) -> list[str]:
        return [
            bytes(message.body).decode()
            for message, _ in self.store.messages
            if message.topic == topic
        ]

    def after_power_loss(self, offsets: bytes) -> PopSide:
        """The broker after a loss of what was not on disk; `offsets` is the table that was."""
        store = MemoryStore()
        for message, result in self.store.messages:
            if result.end_offset <= self.store.flushed_offset:
                store.put_message(message, result.store_timestamp)
        store.flush()
        side = PopSide(self.config, store=store)
        side.core.topics.load(self.core.topics.encode())
        side.core.groups.load(self.core.groups.encode())
        side.core.offsets.load(offsets)
        side.now_ms = self.now_ms
        side.core.deliveries.load()
        return side


def popped(response: RemotingCommand) -> list[Popped]:
    """Put the handles together as a client does (MQClientAPIImpl.processPopResponse)."""
    if response.code in (ResponseCode.POLLING_TIMEOUT, ResponseCode.POLLING_FULL):
        return []
    assert response.code == 0, response.remark
    starts = _by_queue(response.ext_str("startOffsetInfo"))
    offsets = _by_queue(response.ext_str("msgOffsetInfo"))
    found = []
    for record in decode_records(response.body_bytes()):
        mark = ("2" if "+" in record.topic else "1") if record.topic.startswith("%RETRY%") else "0"
        key = (mark, str(record.queue_id))
        assert str(record.queue_offset) in offsets[key].split(",")
        handle = " ".join(
            [
                starts[key],
                response.ext_str("popTime"),
                response.ext_str("invisibleTime"),
                response.ext_str("reviveQid"),
                mark,
                "broker-a",
                str(record.queue_id),
                str(record.queue_offset),
            ]
        )
        found.append(Popped(record, handle))
    return found


def bodies_of(messages: Sequence[Popped]) -> list[str]:
    return [message.body for message in messages]


def _by_queue(text: str) -> dict[tuple[str, str], str]:
    found = {}
    for part in text.split(";"):
        mark, queue, rest = part.split(" ")
        assert (mark, queue) not in found, text
        found[mark, queue] = rest
    return found

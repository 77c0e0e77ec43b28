"""The produce side of a broker on a MemoryStore, and requests to feed it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import attrs

from support.memory.store import MemoryStore
from trioha.broker.clients import ProducerManager
from trioha.broker.delay import DelayLevels, DelaySchedule
from trioha.broker.groups import GroupTable
from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.put_message import PutPipeline
from trioha.broker.send import SendProcessor
from trioha.broker.send_back import SendBackProcessor
from trioha.broker.timers.recall import RecallProcessor
from trioha.broker.timers.service import Timers
from trioha.broker.topics import TopicTable
from trioha.broker.transactions.checks import TransactionChecks
from trioha.broker.transactions.end import EndTransactionProcessor
from trioha.broker.transactions.progress import TransactionProgress
from trioha.broker.transactions.queues import TransactionQueues
from trioha.broker.transactions.service import Transactions
from trioha.config import BrokerConfig
from trioha.remoting.channel import Instant
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.codes import ONEWAY_FLAG, RequestCode
from trioha.wire.names import SCHEDULE_TOPIC, TIMER_TOPIC
from trioha.wire.remoting_command import ExtValue, RemotingCommand

BORN_HOST = bytes([127, 0, 0, 1, 0, 0, 0x15, 0xB3])
STORE_HOST = bytes([10, 0, 0, 1, 0, 0, 0x2A, 0x9F])
WALL_MS = 1_700_000_000_000


def at(now_ms: int = 0) -> Instant:
    """An instant whose wall clock moves with it."""
    return Instant(now_ms, WALL_MS + now_ms)


class FakeChannel:
    """Keeps what is sent; answers requests of ours when the test says so."""

    def __init__(
        self,
        peer_host: bytes = BORN_HOST,
        on_send: Callable[[RemotingCommand], None] | None = None,
    ) -> None:
        self.on_send = on_send
        self.peer = "127.0.0.1:5555"
        self.peer_host = peer_host
        self.closed = False
        self.sent: list[RemotingCommand] = []
        self.unfinished: list[RemotingCommand] = []
        self.asked: list[tuple[RemotingCommand, int, Callable[[RemotingCommand | None], None]]] = []

    def send_nowait(self, command: RemotingCommand) -> None:
        self.sent.append(command)
        if self.on_send is not None:
            self.on_send(command)

    def request_nowait(
        self,
        command: RemotingCommand,
        deadline_ms: int,
        on_response: Callable[[RemotingCommand | None], None],
    ) -> None:
        self.asked.append((command, deadline_ms, on_response))

    def go_on_nowait(self, request: RemotingCommand) -> None:
        self.unfinished.append(request)

    def mark_replication(self) -> None:
        pass

    def close_nowait(self, reason: str) -> None:
        self.closed = True


@attrs.define
class FakeReplicas:
    """Slaves as a put sees them."""

    push2slave_max_offset: int = 0
    available: bool = True
    push2slave_max_metadata: int = -1
    by_quorum: bool = False
    metadata_available: bool = True
    asked: list[int] = attrs.Factory(list)

    def slave_available(self, need_offset: int) -> bool:
        self.asked.append(need_offset)
        return self.available


class ProduceSide:
    """Every part that a send goes through, and the schedule behind it."""

    def __init__(
        self,
        config: BrokerConfig | None = None,
        *,
        by_quorum: bool = False,
        timer_capacity: int = 8,
    ) -> None:
        self.config = BrokerConfig() if config is None else config
        self.events = RecordedEvents()
        self.store = MemoryStore()
        self.replicas = FakeReplicas(by_quorum=by_quorum)
        self.topics = TopicTable(self.config, self.events)
        self.groups = GroupTable(self.config, self.events)
        self.pipeline = PutPipeline(self.store, self.config, self.replicas)
        self.levels = DelayLevels.parse(self.config.message_delay_level)
        self.schedule = DelaySchedule(self.levels, self.store, self.pipeline, self.events)
        self.offsets = ConsumerOffsetTable()
        self.producers = ProducerManager(self.config)
        queues = TransactionQueues(self.store, self.offsets)
        progress = TransactionProgress(self.store, self.offsets, queues)
        self.transactions = Transactions(
            self.config, queues, progress, self.pipeline, self.topics, STORE_HOST
        )
        self.checks = TransactionChecks(
            self.transactions,
            self.store,
            queues,
            self.pipeline,
            self.topics,
            self.producers,
            self.events,
        )
        self.ender = EndTransactionProcessor(self.transactions, self.pipeline)
        self.timers = Timers(
            self.config, self.store, self.pipeline, self.offsets, self.events, timer_capacity
        )
        self.timers.load()
        self.recaller = RecallProcessor(
            self.config, self.topics, self.timers, self.pipeline, STORE_HOST
        )
        self.sender = SendProcessor(
            self.config,
            self.topics,
            self.groups,
            self.pipeline,
            self.levels,
            self.transactions,
            STORE_HOST,
            Random(7),
        )
        self.back = SendBackProcessor(
            self.config,
            self.topics,
            self.groups,
            self.store,
            self.pipeline,
            self.levels,
            Random(7),
        )
        self.channel = FakeChannel()
        self.store.tell_dispatches(self.dispatched)

    def dispatched(
        self, topic: str, queue_id: int, max_offset: int, tags_codes: Sequence[int]
    ) -> None:
        if topic == SCHEDULE_TOPIC:
            self.schedule.on_scheduled(queue_id)
        elif topic == TIMER_TOPIC:
            self.timers.on_dispatch(max_offset, tags_codes)

    def send(self, request: RemotingCommand, instant: Instant | None = None) -> RemotingCommand:
        """Handle a send that is answered at once."""
        response = self.sender.send(self.channel, request, at() if instant is None else instant)
        assert response is not None
        return response


def send_v2(
    topic: str = "T",
    body: bytes = b"hello",
    properties: str = "TAGS\x01TagA\x02UNIQ_KEY\x01ABC\x02WAIT\x01true",
    *,
    code: int = RequestCode.SEND_MESSAGE_V2,
    oneway: bool = False,
    **fields: ExtValue,
) -> RemotingCommand:
    """A send with the short names; `fields` override them."""
    ext: dict[str, ExtValue] = {
        "a": "pg",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": "1",
        "f": "0",
        "g": "1000",
        "h": "7",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": "false",
    }
    ext.update(fields)
    flag = ONEWAY_FLAG if oneway else 0
    return RemotingCommand(code, ext, memoryview(body), opaque=3, flag=flag)

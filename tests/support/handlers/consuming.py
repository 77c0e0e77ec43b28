"""The consume side and the administration of a broker on a MemoryStore, and requests to feed it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from support.handlers.sending import BORN_HOST, STORE_HOST, WALL_MS, FakeChannel, FakeReplicas, at
from support.memory.store import MemoryStore
from trioha.broker.admin import AdminProcessor
from trioha.broker.client_relay import ClientRelay
from trioha.broker.clients import ConsumerManager, ProducerManager
from trioha.broker.delay import DelayLevels, DelaySchedule
from trioha.broker.groups import GroupTable
from trioha.broker.heartbeat import HeartbeatProcessor
from trioha.broker.locks import QueueLocks
from trioha.broker.metadata_ops import OnOp, ignore_op
from trioha.broker.offset_requests import OffsetProcessor
from trioha.broker.offsets import ConsumerOffsetTable
from trioha.broker.pull import PullProcessor
from trioha.broker.pull_hold import PullHold
from trioha.broker.put_message import PutPipeline
from trioha.broker.query import QueryProcessor
from trioha.broker.topics import TopicTable
from trioha.config import BrokerConfig, BrokerRole
from trioha.errors import CommandError, RemoteProtocolError
from trioha.remoting.channel import Handler
from trioha.store.interface import PutMessage
from trioha.testing.recorded_events import RecordedEvents
from trioha.wire.bodies import TopicConfig
from trioha.wire.codes import LanguageCode, RequestCode, ResponseCode
from trioha.wire.heartbeat import (
    ConsumerData,
    HeartbeatData,
    MessageModel,
    ProducerData,
    SubscriptionData,
)
from trioha.wire.java_hash import string_hash
from trioha.wire.properties import encode_properties
from trioha.wire.remoting_command import ExtValue, RemotingCommand

COMMIT, SUSPEND, SUBSCRIPTION = 1, 2, 4
JAVA_VERSION = 409


class ConsumeSide:
    """Every part that consumers and tools meet. Topic T has four queues."""

    def __init__(self, config: BrokerConfig | None = None, on_op: OnOp = ignore_op) -> None:
        self.config = BrokerConfig() if config is None else config
        self.events = RecordedEvents()
        self.store = MemoryStore()
        self.topic_changes: list[TopicConfig | None] = []
        self.topics = TopicTable(
            self.config, self.events, on_change=self.topic_changes.append, on_op=on_op
        )
        self.groups = GroupTable(self.config, self.events, on_op=on_op)
        self.offsets = ConsumerOffsetTable(
            is_slave=self.config.broker_role is BrokerRole.SLAVE, on_op=on_op
        )
        self.consumers = ConsumerManager(self.config, self.groups)
        self.producers = ProducerManager(self.config)
        self.hold = PullHold()
        self.pulls = PullProcessor(
            self.config,
            self.store,
            self.topics,
            self.groups,
            self.consumers,
            self.offsets,
            self.hold,
        )
        self.locks = QueueLocks()
        self.pipeline = PutPipeline(self.store, self.config, FakeReplicas())
        self.schedule = DelaySchedule(
            DelayLevels.parse(self.config.message_delay_level),
            self.store,
            self.pipeline,
            self.events,
        )
        self.applied: list[BrokerConfig] = []
        self.admin = AdminProcessor(
            self.config,
            self.store,
            self.topics,
            self.groups,
            self.consumers,
            self.producers,
            self.offsets,
            self.schedule,
            put_times=self.pipeline.put_times,
            is_slave=lambda: self.config.broker_role is BrokerRole.SLAVE,
            delete_queues=self.store.delete_topic,
            status=lambda instant: {"now_ms": instant.now_ms, "role": self.config.broker_role.name},
            apply_config=self.applied.append,
            counted={},
            instant=at(),
            events=self.events,
        )
        self.handlers: dict[int, Handler] = {
            **self.pulls.handlers(),
            **HeartbeatProcessor(
                self.consumers, self.producers, self.topics, self.groups
            ).handlers(),
            **OffsetProcessor(self.offsets, self.store, self.topics).handlers(),
            **QueryProcessor(self.config, self.store, self.consumers).handlers(),
            **self.locks.handlers(),
            **self.admin.handlers(),
            **ClientRelay(
                *(self.config, self.store, self.topics, self.consumers, self.offsets, self.events),
                lambda topic, group: group in self.popping,
            ).handlers(),
        }
        self.popping: set[str] = set()
        """Groups whose members pop."""
        self.channel = FakeChannel()
        self.topics.put(TopicConfig("T", 4, 4), WALL_MS)
        self.store.tell_dispatches(self.hold.on_dispatch)

    def handle(
        self, request: RemotingCommand, channel: FakeChannel | None = None, now_ms: int = 0
    ) -> RemotingCommand | None:
        """Return the answer that the connection would send."""
        try:
            return self.handlers[request.code](channel or self.channel, request, at(now_ms))
        except CommandError as error:
            return request.response(error.code, error.remark)
        except RemoteProtocolError as error:
            return request.response(ResponseCode.SYSTEM_ERROR, str(error))

    def ask(
        self, request: RemotingCommand, channel: FakeChannel | None = None, now_ms: int = 0
    ) -> RemotingCommand:
        """Return the answer of `handle`, which must come at once."""
        response = self.handle(request, channel, now_ms)
        assert response is not None, "parked, or answered later"
        return response

    def put(
        self,
        tags: str = "",
        *,
        topic: str = "T",
        queue_id: int = 0,
        wall_ms: int = WALL_MS,
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """Store a message and return its physical offset."""
        message = PutMessage(
            topic=topic,
            queue_id=queue_id,
            flag=0,
            sys_flag=0,
            born_timestamp=wall_ms,
            born_host=BORN_HOST,
            store_host=STORE_HOST,
            body=b"hello",
            properties=encode_properties({"TAGS": tags, **(properties or {})}),
            tags_code=string_hash(tags) if tags else 0,
            keys=(b"key",),
        )
        return self.store.put_message(message, wall_ms).phy_offset

    def beat(
        self,
        channel: FakeChannel | None = None,
        *,
        now_ms: int = 0,
        client_id: str = "1.2.3.4@1",
        group: str = "g",
        subscriptions: Sequence[SubscriptionData] = (SubscriptionData("T", "*", sub_version=5),),
        model: MessageModel = MessageModel.CLUSTERING,
        language: LanguageCode = LanguageCode.JAVA,
        version: int = JAVA_VERSION,
    ) -> RemotingCommand:
        """A consumer's heartbeat."""
        consumer = ConsumerData(group, message_model=model, subscriptions=tuple(subscriptions))
        return self.ask(
            heartbeat(
                HeartbeatData(client_id, consumers=(consumer,)), language=language, version=version
            ),
            channel,
            now_ms,
        )


def heartbeat(
    data: HeartbeatData,
    *,
    language: LanguageCode = LanguageCode.JAVA,
    version: int = JAVA_VERSION,
) -> RemotingCommand:
    return RemotingCommand(
        RequestCode.HEART_BEAT, body=data.encode(), language=language, version=version
    )


def producer_heartbeat(group: str = "pg", client_id: str = "1.2.3.4@1") -> RemotingCommand:
    return heartbeat(HeartbeatData(client_id, producers=(ProducerData(group),)))


def pull(
    offset: int = 0,
    *,
    flags: int = SUBSCRIPTION,
    code: int = RequestCode.PULL_MESSAGE,
    **fields: ExtValue,
) -> RemotingCommand:
    """A pull of queue 0 of T as group g; `fields` override."""
    ext: dict[str, ExtValue] = {
        "consumerGroup": "g",
        "topic": "T",
        "queueId": "0",
        "queueOffset": str(offset),
        "maxMsgNums": "32",
        "sysFlag": str(flags),
        "commitOffset": "0",
        "suspendTimeoutMillis": "15000",
        "subscription": "*",
        "subVersion": "5",
        "expressionType": "TAG",
    }
    ext.update(fields)
    return RemotingCommand(code, ext, opaque=9)


def request(code: int, body: bytes = b"", **fields: ExtValue) -> RemotingCommand:
    return RemotingCommand(code, dict(fields), body, opaque=9)

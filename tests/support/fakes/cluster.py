"""A cluster in memory for the client's tests: a name server and brokers behind memory streams.

Nodes answer through the same connection shell as real ones; their handlers are a few lines each,
keep messages in lists and let a test make them fail. Every request is kept for inspection.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from functools import partial

import trio
import trio.testing

from support.memory.streams import StreamTransport
from support.stores.records import encode_record, split_batch
from trioha.client import ClusterConfig, MessageQueue
from trioha.remoting.channel import Channel, Instant
from trioha.services.loop.clock import Clock
from trioha.services.loop.transport import Transport
from trioha.services.remoting.link import RemotingLink
from trioha.store.interface import PutMessage
from trioha.wire.bodies import (
    LockBatchBody,
    encode_consumer_list,
    encode_locked_queues,
)
from trioha.wire.codes import Perm, RequestCode, ResponseCode
from trioha.wire.heartbeat import HeartbeatData
from trioha.wire.message_id import offset_message_id, pack_host
from trioha.wire.remoting_command import RemotingCommand
from trioha.wire.route import BrokerData, QueueData, TopicRouteData

QUEUES = 2
_BORN = pack_host("127.0.0.1", 5555)

Answer = RemotingCommand | None
Script = Callable[[RemotingCommand], Answer]


class FakeNode:
    """Something that listens at an address."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.requests: list[RemotingCommand] = []
        self.links: list[RemotingLink] = []
        self.down = False
        """Connections are refused."""
        self.scripts: dict[int, Script] = {}
        """Code -> what to answer instead. None is silence."""

    def asked(self, code: RequestCode) -> list[RemotingCommand]:
        """Every request with this code so far."""
        return [command for command in self.requests if command.code == code]

    def crash(self) -> None:
        """Drop every connection and refuse new ones."""
        self.down = True
        self.disconnect()

    def disconnect(self) -> None:
        for link in self.links:
            link.close_nowait("crash")
        self.links.clear()

    def push(self, command: RemotingCommand) -> None:
        """Send a request of our own to every client."""
        for link in self.links:
            link.send_nowait(_copy(command))

    def handle(self, channel: Channel, command: RemotingCommand, instant: Instant) -> Answer:
        # A copy: the frame's memory belongs to the read it came in.
        self.requests.append(_copy(command))
        script = self.scripts.get(command.code)
        if script is not None:
            return script(command)
        return self.answer(channel, command)

    def answer(self, channel: Channel, command: RemotingCommand) -> Answer:
        return command.response(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, "not faked")


class FakeNamesrv(FakeNode):
    def __init__(self, address: str = "127.0.0.1:9876") -> None:
        super().__init__(address)
        self.brokers: dict[str, dict[int, str]] = {}
        self.topics: dict[str, int] = {"T": QUEUES}
        self.perm = int(Perm.READ | Perm.WRITE)

    def answer(self, channel: Channel, command: RemotingCommand) -> Answer:
        assert command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC
        queues = self.topics.get(command.ext_str("topic"))
        if queues is None or not self.brokers:
            return command.response(ResponseCode.TOPIC_NOT_EXIST, "no route")
        route = TopicRouteData(
            [BrokerData("C", name, nodes) for name, nodes in self.brokers.items()],
            [QueueData(name, queues, queues, self.perm) for name in self.brokers],
        )
        return command.response(body=route.encode(strict=True))


class FakeBroker(FakeNode):
    """One broker node. `queues` may be shared with its slave."""

    def __init__(self, address: str, name: str, broker_id: int = 0) -> None:
        super().__init__(address)
        self.name = name
        self.broker_id = broker_id
        self.queues: dict[tuple[str, int], list[bytes]] = defaultdict(list)
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.members: dict[str, list[str]] = {}
        self.first_offset = 0
        self.suggested_id = 0
        self.locks: dict[tuple[str, MessageQueue], str] = {}
        self._parked: list[tuple[Channel, RemotingCommand]] = []
        self._size = 0

    def put(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes = b"",
        sys_flag: int = 0,
    ) -> int:
        """Store one message; its offset in the queue."""
        queue = self.queues[topic, queue_id]
        host = pack_host("127.0.0.1", 10911)
        message = PutMessage(topic, queue_id, 0, sys_flag, 1, _BORN, host, body, properties)
        record = encode_record(message, len(queue), self._size, 1000 + len(queue))
        self._size += len(record)
        queue.append(record)
        parked, self._parked = self._parked, []
        for channel, command in parked:
            response = self._pull(channel, command)
            if response is not None:
                channel.send_nowait(response)
        return len(queue) - 1

    def answer(self, channel: Channel, command: RemotingCommand) -> Answer:
        handlers: dict[int, Callable[[Channel, RemotingCommand], Answer]] = {
            RequestCode.SEND_MESSAGE_V2: self._send,
            RequestCode.SEND_BATCH_MESSAGE: self._send_batch,
            RequestCode.PULL_MESSAGE: self._pull,
            RequestCode.QUERY_CONSUMER_OFFSET: self._query_offset,
            RequestCode.UPDATE_CONSUMER_OFFSET: self._update_offset,
            RequestCode.GET_MAX_OFFSET: self._max_offset,
            RequestCode.GET_MIN_OFFSET: self._min_offset,
            RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: self._search_offset,
            RequestCode.HEART_BEAT: self._heartbeat,
            RequestCode.GET_CONSUMER_LIST_BY_GROUP: self._consumer_list,
            RequestCode.LOCK_BATCH_MQ: self._lock,
            RequestCode.UNLOCK_BATCH_MQ: self._unlock,
            RequestCode.UNREGISTER_CLIENT: self._ok,
            RequestCode.CONSUMER_SEND_MSG_BACK: self._ok,
        }
        return handlers[command.code](channel, command)

    def _ok(self, channel: Channel, command: RemotingCommand) -> Answer:
        return command.response()

    def _send(self, channel: Channel, command: RemotingCommand) -> Answer:
        queue_id = command.ext_int("e")
        properties = command.ext_str("i").encode()
        offset = self.put(command.ext_str("b"), queue_id, command.body_bytes(), properties)
        return self._sent(command, queue_id, offset)

    def _send_batch(self, channel: Channel, command: RemotingCommand) -> Answer:
        assert command.ext_str("m") == "true"
        queue_id = command.ext_int("e")
        offsets = [
            self.put(command.ext_str("b"), queue_id, bytes(element.body), bytes(element.properties))
            for element in split_batch(command.body_bytes())
        ]
        return self._sent(command, queue_id, offsets[0])

    def _sent(self, command: RemotingCommand, queue_id: int, offset: int) -> Answer:
        host = pack_host("127.0.0.1", 10911)
        return command.response(
            ext_fields={
                "msgId": offset_message_id(host, 0),
                "queueId": queue_id,
                "queueOffset": offset,
            }
        )

    def _pull(self, channel: Channel, command: RemotingCommand) -> Answer:
        queue = self.queues[command.ext_str("topic"), command.ext_int("queueId")]
        offset = command.ext_int("queueOffset")
        code, following = ResponseCode.SUCCESS, offset
        records: list[bytes] = []
        first = min(self.first_offset, len(queue))
        if offset < first or offset > len(queue):
            code = ResponseCode.PULL_OFFSET_MOVED
            following = first if offset < first else len(queue)
        elif offset == len(queue):
            if command.ext_int("sysFlag") & 2:
                self._parked.append((channel, _copy(command)))
                return None
            code = ResponseCode.PULL_NOT_FOUND
        else:
            records = queue[offset : offset + command.ext_int("maxMsgNums")]
            following = offset + len(records)
        return command.response(
            code,
            ext_fields={
                "suggestWhichBrokerId": self.suggested_id,
                "nextBeginOffset": following,
                "minOffset": self.first_offset,
                "maxOffset": len(queue),
            },
            body=b"".join(records),
        )

    def _offset_key(self, command: RemotingCommand) -> tuple[str, str, int]:
        return (
            command.ext_str("consumerGroup"),
            command.ext_str("topic"),
            command.ext_int("queueId"),
        )

    def _query_offset(self, channel: Channel, command: RemotingCommand) -> Answer:
        offset = self.offsets.get(self._offset_key(command))
        if offset is None:
            return command.response(ResponseCode.QUERY_NOT_FOUND, "none")
        return command.response(ext_fields={"offset": offset})

    def _update_offset(self, channel: Channel, command: RemotingCommand) -> Answer:
        self.offsets[self._offset_key(command)] = command.ext_int("commitOffset")
        return command.response()

    def _max_offset(self, channel: Channel, command: RemotingCommand) -> Answer:
        queue = self.queues[command.ext_str("topic"), command.ext_int("queueId")]
        return command.response(ext_fields={"offset": len(queue)})

    def _min_offset(self, channel: Channel, command: RemotingCommand) -> Answer:
        return command.response(ext_fields={"offset": self.first_offset})

    def _search_offset(self, channel: Channel, command: RemotingCommand) -> Answer:
        return command.response(ext_fields={"offset": command.ext_int("timestamp") - 1000})

    def _heartbeat(self, channel: Channel, command: RemotingCommand) -> Answer:
        data = HeartbeatData.decode(command.body_bytes())
        for consumer in data.consumers:
            members = self.members.setdefault(consumer.group_name, [])
            if data.client_id not in members:
                members.append(data.client_id)
        return command.response()

    def _consumer_list(self, channel: Channel, command: RemotingCommand) -> Answer:
        members = self.members.get(command.ext_str("consumerGroup"))
        if members is None:
            return command.response(ResponseCode.SYSTEM_ERROR, "no consumer for this group")
        return command.response(body=encode_consumer_list(members))

    def _lock(self, channel: Channel, command: RemotingCommand) -> Answer:
        body = LockBatchBody.decode(command.body_bytes())
        granted = [
            queue
            for queue in body.queues
            if self.locks.setdefault((body.consumer_group, queue), body.client_id) == body.client_id
        ]
        return command.response(body=encode_locked_queues(granted))

    def _unlock(self, channel: Channel, command: RemotingCommand) -> Answer:
        body = LockBatchBody.decode(command.body_bytes())
        for queue in body.queues:
            if self.locks.get((body.consumer_group, queue)) == body.client_id:
                del self.locks[body.consumer_group, queue]
        return command.response()


class FakeCluster:
    """Nodes by address, and the connector that reaches them."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self.clock = Clock.virtual()
        self.namesrv = FakeNamesrv()
        self.nodes: dict[str, FakeNode] = {self.namesrv.address: self.namesrv}
        self.connects: list[str] = []
        self._nursery = nursery

    @property
    def config(self) -> ClusterConfig:
        return ClusterConfig(connector=self.connect, clock=self.clock, rng=random.Random(1))

    def add_node(self, node: FakeNode) -> None:
        self.nodes[node.address] = node

    def add_broker(self, name: str = "a", broker_id: int = 0) -> FakeBroker:
        """A broker that the name server knows."""
        broker = FakeBroker(f"{name}{broker_id}:10911", name, broker_id)
        self.add_node(broker)
        self.namesrv.brokers.setdefault(name, {})[broker_id] = broker.address
        return broker

    async def connect(self, host: str, port: int) -> Transport:
        address = f"{host}:{port}"
        self.connects.append(address)
        await trio.lowlevel.checkpoint()
        node = self.nodes.get(address)
        if node is None or node.down:
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = trio.testing.memory_stream_pair()
        link = RemotingLink(
            StreamTransport(theirs, f"{address}-client"),
            self.clock,
            handle=node.handle,
        )
        node.links.append(link)
        self._nursery.start_soon(partial(link.serve), name=f"fake[{address}]")
        return StreamTransport(ours, address)


def _copy(command: RemotingCommand) -> RemotingCommand:
    """One that stays as it was, whatever becomes of the connection's buffers."""
    return RemotingCommand(
        command.code,
        dict(command.ext_fields),
        command.body_bytes(),
        command.opaque,
        command.flag,
        command.remark,
        command.version,
        command.language,
        command.serialize_type,
    )

"""Requests to name servers and their answers: routes, cluster, registrations.

Route JSON is compact, and its broker ids are bare integers unless the requester is 4.9.4 or later
or asks for strict JSON: Go's client neither trims blanks nor strips quotes (gotchas 1 and 2).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Self

import attrs

from trioha.errors import RemoteProtocolError
from trioha.wire import fastjson
from trioha.wire.bodies import (
    DataVersion,
    TopicConfig,
    topic_table_from_dict,
    topic_table_to_dict,
)
from trioha.wire.codes import FRAME_BYTES_MAX, VERSION_V3_0_11
from trioha.wire.json_fields import integer, integer_of, list_of, object_of, text, texts
from trioha.wire.remoting_command import Buffer

NOT_A_NAME_SERVER = "is no name server, but a broker, say; name servers have port 9876 by default"
"""Words on a node that was named as a name server and answers as a broker does."""
_I32 = struct.Struct(">i")
_INFLATED_BYTES_MAX = FRAME_BYTES_MAX
"""A registration may unpack to this much: zlib alone would let 16 MiB become 16 GiB."""


_DIALECT_BYTES_MAX = 65_536
ROUTE_QUEUES_MAX = 131_072
"""Queues of a topic's route, over all brokers: eight brokers with as many as a broker accepts."""


@attrs.frozen
class QueueData:
    """Number of a topic's queues on one broker, and the permission on them."""

    broker_name: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int = 0

    def to_dict(self) -> dict[str, object]:
        return {
            "brokerName": self.broker_name,
            "perm": self.perm,
            "readQueueNums": self.read_queue_nums,
            "topicSysFlag": self.topic_sys_flag,
            "writeQueueNums": self.write_queue_nums,
        }

    @classmethod
    def from_dict(cls, value: object) -> Self:
        fields = object_of(value, "queueData")
        return cls(
            text(fields, "brokerName"),
            integer(fields, "readQueueNums"),
            integer(fields, "writeQueueNums"),
            integer(fields, "perm"),
            integer(fields, "topicSysFlag"),
        )


@attrs.frozen
class BrokerData:
    """A replica set: its cluster, its name, the address of each broker id."""

    cluster: str
    broker_name: str
    broker_addrs: Mapping[int, str]

    def to_dict(self, *, strict: bool = False, acting_master: bool = False) -> dict[str, object]:
        """Return the JSON form.

        `acting_master` adds `enableActingMaster`, which RocketMQ 5 writes and the Rust client
        cannot do without. It is false: no slave of ours acts as a master.
        """
        addresses = dict(sorted(self.broker_addrs.items()))
        fields: dict[str, object] = {
            "brokerAddrs": addresses if strict else fastjson.IntKeys(addresses),
            "brokerName": self.broker_name,
            "cluster": self.cluster,
        }
        return {**fields, "enableActingMaster": False} if acting_master else fields

    @classmethod
    def from_dict(cls, value: object) -> Self:
        fields = object_of(value, "brokerData")
        table = object_of(fields.get("brokerAddrs"), "brokerAddrs")
        return cls(
            text(fields, "cluster"),
            text(fields, "brokerName"),
            {integer_of(broker_id, "broker id"): text(table, broker_id) for broker_id in table},
        )


@attrs.frozen
class TopicRouteData:
    """Route of a topic, its brokers and queues: the answer to 105."""

    broker_datas: Sequence[BrokerData] = ()
    queue_datas: Sequence[QueueData] = ()
    order_topic_conf: str | None = None

    def to_dict(self, *, strict: bool = False, acting_master: bool = False) -> dict[str, object]:
        route: dict[str, object] = {
            "brokerDatas": [
                broker.to_dict(strict=strict, acting_master=acting_master)
                for broker in self.broker_datas
            ],
            "filterServerTable": {},
        }
        if self.order_topic_conf is not None:
            route["orderTopicConf"] = self.order_topic_conf
        route["queueDatas"] = [queues.to_dict() for queues in self.queue_datas]
        return route

    def encode(self, strict: bool, *, acting_master: bool = False) -> bytes:
        """The body; `strict` quotes the broker ids, `acting_master` adds that field."""
        return fastjson.dumps(self.to_dict(strict=strict, acting_master=acting_master))

    @classmethod
    def from_dict(cls, value: object) -> Self:
        fields = object_of(value, "route")
        brokers = list_of(fields.get("brokerDatas"), "brokerDatas")
        queues = tuple(map(QueueData.from_dict, list_of(fields.get("queueDatas"), "queueDatas")))
        # Readers of a route make a list of its queues. A few bytes must not ask for billions.
        count = sum(max(0, one.read_queue_nums, one.write_queue_nums) for one in queues)
        if count > ROUTE_QUEUES_MAX:
            raise RemoteProtocolError(
                f"a route with {count} queues, at most {ROUTE_QUEUES_MAX} are taken"
            )
        return cls(
            tuple(map(BrokerData.from_dict, brokers)),
            queues,
            text(fields, "orderTopicConf") or None,
        )

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        return cls.from_dict(fastjson.loads(data))


@attrs.frozen
class ClusterInfo:
    """Every broker and every cluster: the answer to 106."""

    broker_addr_table: Mapping[str, BrokerData]
    cluster_addr_table: Mapping[str, tuple[str, ...]]

    def encode(self) -> bytes:
        return fastjson.dumps(
            {
                "brokerAddrTable": {
                    name: broker.to_dict() for name, broker in self.broker_addr_table.items()
                },
                "clusterAddrTable": dict(self.cluster_addr_table),
            }
        )

    @classmethod
    def decode(cls, data: Buffer) -> Self:
        fields = object_of(fastjson.loads(data), "cluster info")
        brokers = object_of(fields.get("brokerAddrTable"), "brokerAddrTable")
        clusters = object_of(fields.get("clusterAddrTable"), "clusterAddrTable")
        return cls(
            {name: BrokerData.from_dict(broker) for name, broker in brokers.items()},
            {name: texts(clusters, name) for name in clusters},
        )


@attrs.frozen
class RegisterBrokerBody:
    """Registration of a broker's topics (103). Slaves send an empty table."""

    data_version: DataVersion
    topics: Mapping[str, TopicConfig]
    filter_servers: tuple[str, ...] = ()

    def encode(self, *, compressed: bool = False) -> bytes:
        if compressed:
            return zlib.compress(self._packed(), 9)
        wrapper = topic_table_to_dict(self.data_version, self.topics)
        return fastjson.dumps(
            {
                "filterServerList": list(self.filter_servers),
                "topicConfigSerializeWrapper": wrapper,
            }
        )

    @classmethod
    def decode(cls, data: Buffer, *, compressed: bool, version: int) -> Self:
        """Read a registration sent by a broker of `version`.

        What 5.x appends to either form is ignored. Senders before 3.0.11 put the topic wrapper
        itself in the body. No body at all is an empty table.

        Errors: RemoteProtocolError.
        """
        if version < VERSION_V3_0_11:
            return cls(*topic_table_from_dict(fastjson.loads(data) if len(data) else None))
        if not len(data):
            return cls(DataVersion(), {})
        if compressed:
            return cls._unpack(inflated(data))
        fields = object_of(
            fastjson.loads(data, dialect_bytes_max=_DIALECT_BYTES_MAX), "registration"
        )
        data_version, topics = topic_table_from_dict(fields.get("topicConfigSerializeWrapper"))
        return cls(data_version, topics, texts(fields, "filterServerList"))

    def _packed(self) -> bytes:
        topics = [
            f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} "
            f"{topic.topic_filter_type}".encode()
            for topic in self.topics.values()
        ]
        return b"".join(
            (
                _sized(self.data_version.encode()),
                _I32.pack(len(topics)),
                *map(_sized, topics),
                _sized(fastjson.dumps(list(self.filter_servers))),
            )
        )

    @classmethod
    def _unpack(cls, data: bytes) -> Self:
        version, position = take(data, 0)
        count, position = take_count(data, position)
        topics = {}
        for _ in range(count):
            line, position = take(data, position)
            topic = topic_of_line(line)
            topics[topic.topic_name] = topic
        servers, position = take(data, position)
        return cls(
            DataVersion.decode(version),
            topics,
            texts({"filterServerList": fastjson.loads(servers)}, "filterServerList"),
        )


def topic_of_line(line: bytes) -> TopicConfig:
    """One topic of a compressed registration. Errors: RemoteProtocolError."""
    try:
        # A sixth word, 5.x's attributes, may hold blanks of its own.
        name, read, write, perm, filter_type, *_ = line.decode().split(" ", 5)
    except ValueError:
        raise RemoteProtocolError(f"undecodable topic in a registration: {line!r:.80}") from None
    return TopicConfig.from_dict(
        {
            "topicName": name,
            "readQueueNums": read,
            "writeQueueNums": write,
            "perm": perm,
            "topicFilterType": filter_type,
        }
    )


def inflated(data: Buffer) -> bytes:
    """The bytes of a compressed registration. Errors: RemoteProtocolError."""
    inflater = zlib.decompressobj()
    try:
        packed = inflater.decompress(data, _INFLATED_BYTES_MAX)
    except zlib.error as error:
        raise RemoteProtocolError(f"registration does not decompress: {error}") from None
    if not inflater.eof:
        raise RemoteProtocolError("registration is cut off, or too large when decompressed")
    return packed


def _sized(data: bytes) -> bytes:
    return _I32.pack(len(data)) + data


def take_count(data: bytes, position: int) -> tuple[int, int]:
    """A count in a compressed registration, and the position behind it."""
    if position + 4 > len(data):
        raise RemoteProtocolError("registration is cut off")
    (count,) = _I32.unpack_from(data, position)
    if not 0 <= count <= len(data):
        raise RemoteProtocolError(f"registration holds a length of {count}")
    return count, position + 4


def take(data: bytes, position: int) -> tuple[bytes, int]:
    """A part of a compressed registration behind its size, and the position behind that."""
    size, position = take_count(data, position)
    if position + size > len(data):
        raise RemoteProtocolError("registration is cut off")
    return data[position : position + size], position + size

"""A registration (103), read a few topics at a time.

Every peer of a name server without a secret may send one, of up to 16 MiB, and a broker with 50,000
topics has to. So nothing here takes long before the first topic: a large body in JSON has to be
strict, as RocketMQ's brokers write it, is searched for what is wanted alone, and has a limit of
objects; a compressed one has a limit of inflated bytes and is read line by line.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final

import msgspec

from trioha.errors import RemoteProtocolError
from trioha.wire import fastjson
from trioha.wire.bodies import DataVersion, TopicConfig
from trioha.wire.codes import VERSION_V3_0_11
from trioha.wire.remoting_command import Buffer
from trioha.wire.route import RegisterBrokerBody, inflated, take, take_count, topic_of_line

SMALL_BYTES: Final = 262_144
"""A smaller body in JSON is read at once, in any dialect of RocketMQ's brokers."""
OBJECTS_MAX: Final = 3 * 65_536
"""Limit of JSON objects: a topic is one, its attributes in 5.x are another."""
_VERSION_BYTES_MAX = 4_096
_Int = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]


class _Topic(msgspec.Struct, gc=False):
    topicName: str | None = None
    readQueueNums: _Int = 16
    writeQueueNums: _Int = 16
    perm: _Int = 6
    topicSysFlag: _Int = 0


class _Table(msgspec.Struct):
    topicConfigTable: dict[str, _Topic] | None = None
    dataVersion: msgspec.Raw = msgspec.Raw(b"{}")


class _Registration(msgspec.Struct):
    topicConfigSerializeWrapper: _Table | None = None


_decode = msgspec.json.Decoder(_Registration).decode


class RegistrationReader:
    """The data version of one registration, and its topics one after the other."""

    def __init__(self, data: Buffer, *, compressed: bool, version: int) -> None:
        """Begin to read what a broker of `version` has sent.

        Errors: RemoteProtocolError, and the same from `topics`.
        """
        self.data_version: DataVersion
        self.topics: Iterator[TopicConfig]
        """The topics that have not been read. Slaves send none."""
        if compressed and version >= VERSION_V3_0_11 and len(data):
            packed = inflated(data)
            told, position = take(packed, 0)
            if len(told) > _VERSION_BYTES_MAX:
                raise RemoteProtocolError(f"a data version of {len(told)} bytes")
            self.data_version = DataVersion.decode(told)
            self.topics = _unpacked(packed, position)
        elif len(data) <= SMALL_BYTES or version < VERSION_V3_0_11:
            if len(data) > SMALL_BYTES:
                raise RemoteProtocolError(
                    f"a registration of {len(data)} bytes by a broker before 3.0.11"
                )
            body = RegisterBrokerBody.decode(data, compressed=False, version=version)
            self.data_version, self.topics = body.data_version, iter(body.topics.values())
        else:
            table = _table_of(bytes(data))
            if len(table.dataVersion) > _VERSION_BYTES_MAX:
                raise RemoteProtocolError(f"a data version of {len(table.dataVersion)} bytes")
            self.data_version = DataVersion.from_dict(fastjson.loads(bytes(table.dataVersion)))
            self.topics = _topics_of(table)


def _table_of(data: bytes) -> _Table:
    count = data.count(b"{")
    if count > OBJECTS_MAX:
        raise RemoteProtocolError(f"a registration of {count} objects, at most {OBJECTS_MAX}")
    try:
        return _decode(data).topicConfigSerializeWrapper or _Table()
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise RemoteProtocolError(
            f"a registration of {len(data)} bytes is not as brokers write it: {error}"
        ) from None


def _topics_of(table: _Table) -> Iterator[TopicConfig]:
    topics = table.topicConfigTable or {}
    while topics:
        name, topic = topics.popitem()
        yield TopicConfig(
            topic.topicName if topic.topicName is not None else name,
            topic.readQueueNums,
            topic.writeQueueNums,
            topic.perm,
            topic_sys_flag=topic.topicSysFlag,
        )


def _unpacked(data: bytes, position: int) -> Iterator[TopicConfig]:
    count, position = take_count(data, position)
    for _ in range(count):
        line, position = take(data, position)
        yield topic_of_line(line)
